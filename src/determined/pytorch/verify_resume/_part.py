"""One part of the comparison: a user's script, with the arguments of `init` and `fit` replaced."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import runpy
import sys
from typing import Any

from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._instrumentation.overrides import Overrides, overriding
from determined.pytorch._plan import FitPlan
from determined.pytorch._schedule import Batch
from determined.pytorch._trial import PyTorchTrial
from determined.pytorch.verify_resume._interruptions import StopPoint
from determined.pytorch.verify_resume._trace import Trace

_SEED = 0


@dataclasses.dataclass(frozen=True)
class Part:
    """What a process does: train up to `batches`, or to a stop, and write a trace."""

    name: str
    trace: str
    storage: str
    batches: int
    stop: StopPoint | None = None
    checkpoint: str | None = None

    def to_json(self) -> str:
        """Return it for the command line of the process."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Part:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        stop = values.pop("stop")
        return cls(**values, stop=None if stop is None else StopPoint(**stop))


class _PartOverrides(Overrides):
    """Has a script train one part of the comparison."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def init(self, options: dict[str, Any]) -> dict[str, Any]:
        if options.get("seed") is None:
            options = {**options, "seed": _SEED}
        storage = self._part.storage
        return {**options, "checkpoint_storage": storage, "enable_tensorboard_logging": False}

    def fit(self, plan: FitPlan) -> FitPlan:
        return dataclasses.replace(
            plan,
            max_length=Batch(self._part.batches),
            latest_checkpoint=self._part.checkpoint,
            checkpoint_policy="none",
            progress=False,
        )

    def observer(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> Trace:
        self._trace = Trace(trial, context, self._part.stop)
        return self._trace

    def after_fit(self, latest_checkpoint: str | None) -> None:
        """Write the trace. What the script does after training is not compared."""
        trace = self._trace
        record = {
            "events": trace.events,
            "points": [dataclasses.asdict(point) for point in trace.points.passed],
            "checkpoint": latest_checkpoint,
            "attributes": trace.attributes,
        }
        pathlib.Path(self._part.trace).write_text(json.dumps(record))
        raise SystemExit(0)


def run_part(part: Part, script: str, arguments: list[str]) -> None:
    """Run the script as one part of the comparison; writes the trace."""
    sys.argv = [script, *arguments]
    sys.path[0] = str(pathlib.Path(script).resolve().parent)
    with overriding(_PartOverrides(part)):
        runpy.run_path(script, run_name="__main__")
