"""The runs that are compared: one without stops, one with them, and the first difference."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from determined.core.backends.tracking import TRACKING_VARIABLE
from determined.pytorch.verify_resume._interruptions import StopPoint, plan_stops
from determined.pytorch.verify_resume._messages import first_unequal, listed
from determined.pytorch.verify_resume._part import Part
from determined.pytorch.verify_resume._trace import Event

Run = Callable[[Part], None]
Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcome: `difference` is None when the resumed run was bit-exact.

    `cut` is how many batches were trained before the first stop; `stops` has all of them in words.
    """

    batches: int
    cut: int
    difference: str | None
    stops: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.difference is not None:
            return f"NOT exact: {self.difference}"
        parts = f"{self.cut} batches, a new process and {self.batches - self.cut} more"
        if len(self.stops) > 1:
            parts = f"a run in {len(self.stops) + 1} processes, stopped {'; '.join(self.stops)}"
        return (
            f"bit-exact: {self.batches} batches in one go equal {parts}, in samples, metrics, "
            "learning rates, random states, weights, optimizers, schedulers and callbacks."
        )


def verify_resume(
    script: str | os.PathLike[str],
    arguments: list[str] | None = None,
    batches: int = 20,
    cut: int | None = None,
    timeout_seconds: float = 600,
) -> Report:
    """Run a training script whole and in parts, and compare.

    Only the script's first `fit` counts, on one rank. A script that sets no seed gets one.

    Args:
        script: The file that one would start with `python`.
        arguments: Its command line arguments.
        batches: How many batches to train.
        cut: Stop once, after so many batches. By default the run is stopped at a point of each kind
            that it has: between batches, in a batch, in a hook, in a validation, at a save.
        timeout_seconds: Limit for each of the processes.
    """
    if cut is not None and not 0 < cut < batches:
        raise ValueError(f"`cut` must be between 1 and {batches - 1}, got {cut}.")
    if batches < 2:
        raise ValueError(f"`batches` must be at least 2, got {batches}.")
    if not pathlib.Path(script).is_file():
        raise FileNotFoundError(f"There is no script {script}.")

    def run(part: Part) -> None:
        command = [sys.executable, "-m", "determined.pytorch.verify_resume", "--part"]
        command += [part.to_json(), str(script), *(arguments or [])]
        # What is trained here only to be compared is no run of the user's.
        environment = {**os.environ, TRACKING_VARIABLE: "off"}
        done = subprocess.run(
            command, timeout=timeout_seconds, capture_output=True, text=True, env=environment
        )
        if done.returncode or not pathlib.Path(part.trace).exists():
            raise RuntimeError(
                f"{script} failed in the {part.name} run (status {done.returncode}):\n"
                f"{done.stderr.strip() or 'it never called Trainer.fit'}"
            )

    return compare(run, batches, cut)


def compare(run: Run, batches: int, cut: int | None = None) -> Report:
    """Let `run` carry out the parts, and compare their traces."""
    with tempfile.TemporaryDirectory(prefix="determined-verify-") as directory:

        def trace(name: str, stop: StopPoint | None, checkpoint: str | None) -> Record:
            path = pathlib.Path(directory, f"{name}.json")
            storage = str(path.with_suffix(".storage"))
            run(Part(name, str(path), storage, batches, stop, checkpoint))
            record: Record = json.loads(path.read_text())
            return record

        whole = trace("uncut", None, None)
        if cut is None:
            stops = plan_stops([StopPoint(**point) for point in whole["points"]])
        else:
            stops = [StopPoint(cut - 1, "after train_batch")]
        parts: list[Record] = []
        for number, stop in enumerate([*stops, None]):
            checkpoint = parts[-1]["checkpoint"] if parts else None
            parts.append(trace(f"part {number + 1}", stop, checkpoint))
    difference = _difference(whole, parts, stops)
    return Report(batches, stops[0].batch + 1, difference, tuple(map(str, stops)))


def _difference(whole: Record, parts: Sequence[Record], stops: Sequence[StopPoint]) -> str | None:
    """Compare the parts, one after another, with where they belong in the whole."""
    position = 0
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        events = part["events"] if is_last else _until_stop(part["events"])
        rest = whole["events"][position:]
        found = first_unequal(rest if is_last else rest[: len(events)], events)
        if found is not None and number == 0:
            return (
                f"two runs from the same start already differ, before any interruption: {found}. "
                "Seed everything with pytorch.init(seed=...), and avoid randomness that no seed "
                "controls."
            )
        if found is not None:
            where = "" if len(stops) == 1 else f" from the stop {stops[number - 1]}"
            suspects = _suspects(whole["attributes"], part["attributes"])
            return f"after the resume{where}, {found}.{suspects}"
        position += len(events)
    return None


def _until_stop(events: list[Event]) -> list[Event]:
    """Leave out what is done again: a validation that the stop broke off."""
    kept = events[:-1]  # the last one is about the state at the stop
    while kept and kept[-1]["stage"] in ("before validation", "on_validation_start"):
        del kept[-1]
    return kept


def _suspects(expected: dict[str, dict[str, str]], found: dict[str, dict[str, str]]) -> str:
    """Name what the trial keeps to itself and did not have again after the resume."""
    batch = next(iter(found), "")  # the first that was fetched after the resume
    whole, resumed = expected.get(batch, {}), found.get(batch, {})
    names = [name for name, value in whole.items() if resumed.get(name) != value]
    if not names:
        return ""
    return (
        f" No checkpoint holds {listed(names)}, which the resumed run started with new values: "
        "pass models, optimizers and schedulers through context.wrap_..., and keep the rest in "
        "the state_dict of a callback."
    )
