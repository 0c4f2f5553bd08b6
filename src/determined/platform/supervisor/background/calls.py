"""Run the user's command, or post to the user's URL, when an experiment has ended.

That a call is due is committed together with the end of the experiment, and cleared once it was
made: so it is made at least once, whatever dies in between. The result is an event of the
experiment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from determined.platform.homes.creation import experiment_folder
from determined.platform.homes.home import Home
from determined.platform.runs.environment import load_environment
from determined.platform.supervisor.decisions import Decisions
from determined.store import Experiment, Transaction

logger = logging.getLogger("determined.supervisor")

_LONGEST_SECONDS = 60.0
_KILL_SECONDS = 1.0
_SHOWN_CHARACTERS = 500


@dataclass(frozen=True)
class _Result:
    experiment_id: int
    name: str
    is_ok: bool
    text: str


class Calls:
    """Makes the calls that are due, one after the other, outside the loop."""

    def __init__(self, home: Home, changed: asyncio.Event, *, is_copy: bool = False) -> None:
        """In a copy of a home none is made: the home itself makes them."""
        self._home = home
        self._is_copy = is_copy
        self._changed = changed
        self._due: list[tuple[Experiment, str]] = []
        self._results: list[_Result] = []
        self._task: asyncio.Task[None] | None = None

    def load(self, transaction: Transaction) -> None:
        """Read which calls are due."""
        done = {(result.experiment_id, result.name) for result in self._results}
        self._due = [
            (experiment, name)
            for experiment in ([] if self._is_copy else transaction.with_calls())
            for name in experiment.environment["calls"]
            if (experiment.id, name) not in done
        ]

    @property
    def has_results(self) -> bool:
        return bool(self._results)

    @property
    def is_busy(self) -> bool:
        return self._task is not None or bool(self._due) or bool(self._results)

    def act(self) -> None:
        """Start the next call."""
        if self._task is None and self._due:
            work = self._make_call(*self._due.pop(0))
            self._task = asyncio.get_running_loop().create_task(work)

    def record(self, decisions: Decisions) -> None:
        """Record that calls were made, and their results."""
        transaction = decisions.transaction
        for result in self._results:
            experiment = transaction.experiment(result.experiment_id)
            left = [n for n in experiment.environment.get("calls", []) if n != result.name]
            environment = {**experiment.environment, "calls": left}
            if not left:
                del environment["calls"]
            transaction.update_experiment(experiment.id, environment=environment)
            transaction.note(
                "called",
                f"integrations.{result.name}: {result.text}",
                level="info" if result.is_ok else "warn",
                experiment_id=experiment.id,
            )
        self._results.clear()

    async def close(self) -> None:
        """Wait for the current call: otherwise it would be made again."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _make_call(self, experiment: Experiment, name: str) -> None:
        try:
            text = await asyncio.to_thread(_call, self._home, experiment, name)
            result = _Result(experiment.id, name, True, text)
        except Exception as error:  # user code: whatever it raises, we continue
            logger.warning("integrations.%s of experiment %s: %s", name, experiment.id, error)
            result = _Result(experiment.id, name, False, f"failed: {error}"[:_SHOWN_CHARACTERS])
        self._results.append(result)
        self._task = None
        self._changed.set()


def _call(home: Home, experiment: Experiment, name: str) -> str:
    """Run the command, or post to the URL, and return the result."""
    target = getattr(experiment.configuration.integrations, name)
    body = json.dumps(
        {
            "event": name,
            "experiment_id": experiment.id,
            "name": experiment.name,
            "state": experiment.state,
            "reason": experiment.reason,
            "best_validation": experiment.best_validation,
            "best_trial_id": experiment.best_trial_id,
        }
    ).encode()
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        return _post(target, body)
    argv = ["sh", "-c", target] if isinstance(target, str) else list(target)
    return _run(argv, body, experiment_folder(home, experiment), experiment)


def _post(url: str, body: bytes) -> str:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_LONGEST_SECONDS) as response:
        return f"posted, status {response.status}"


def _run(argv: list[str], body: bytes, folder: Path, experiment: Experiment) -> str:
    recorded = load_environment(folder)
    variables = {
        **recorded.variables,
        "DET_EXPERIMENT_ID": str(experiment.id),
        "DET_EXPERIMENT_STATE": experiment.state,
        "DET_EXPERIMENT_NAME": experiment.name,
    }
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=variables,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(body, timeout=_LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_KILL_SECONDS)
        raise TimeoutError(f"killed after {_LONGEST_SECONDS:g} s") from None
    shown = output.decode(errors="replace").strip()[-_SHOWN_CHARACTERS:]
    if process.returncode != 0:
        raise RuntimeError(f"status {process.returncode}: {shown}".rstrip(": "))
    return f"done: {shown}".rstrip(": ")
