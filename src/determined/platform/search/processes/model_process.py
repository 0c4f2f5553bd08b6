"""Run a model in a separate process: it needs more time and memory than a supervisor can spare."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
from typing import Any

from determined.platform.search.processes.child import Child, ChildLostError
from determined.platform.search.sampling.model import ProposalRequest
from determined.platform.search.space import Point

_NEEDED = {"tpe": "optuna", "qmc": "optuna", "cmaes": "optuna cmaes", "gp": "optuna torch"}
# Its matrices are small: more threads would only take cores from the trials.
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class ModelProcess:
    """A `Model`. It is stateless between requests, so its process may exit and be restarted."""

    def __init__(
        self, sampler: str, hyperparameters: dict[str, Any], timeout_seconds: float = 60.0
    ) -> None:
        self._sampler = sampler
        self._opening = json.dumps({"sampler": sampler, "hyperparameters": hyperparameters})
        self._timeout = timeout_seconds
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def propose(self, request: ProposalRequest) -> Point:
        """Return the point that the model proposes. Raises if there is none."""
        line = json.dumps(dataclasses.asdict(request))
        if self._child is not None:
            try:
                return self._exchange(self._child, line)
            except ChildLostError:
                self.close()  # it exited after a while without requests
        self._child = Child(
            [sys.executable, "-m", "determined.platform.search.processes.model_child"],
            None,
            self._timeout,
            variables={**os.environ, **_ONE_THREAD} if self._sampler == "auto" else None,
        )
        self._child.send(self._opening)
        self._child.receive()
        return self._exchange(self._child, line)

    def close(self) -> None:
        """End the process, if there is one; the next request starts another."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def abort(self) -> None:
        """Make what another thread is asking fail."""
        if self._child is not None:
            self._child.abort()

    @staticmethod
    def _exchange(child: Child, line: str) -> Point:
        child.send(line)
        answer = json.loads(child.receive())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        point: Point = answer["point"]
        return point


def missing_packages(sampler: str) -> str | None:
    """Return a sentence about packages that a sampler is missing; nothing is imported."""
    needed = _NEEDED.get(sampler, "").split()
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    return (
        f"searcher.sampler: `{sampler}` needs {' and '.join(missing)}. Install it: "
        "`pip install 'determined-pytorch[optuna]'`."
    )
