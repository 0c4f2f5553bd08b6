"""Three runs of one script, and the first difference between their traces in words."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from determined.core._tracking import TRACKING_VARIABLE
from determined.pytorch.verify_resume._trace import Event

_SHOWN = 8  # samples and names in a message

Run = Callable[[dict[str, Any]], None]


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcome: `difference` is None when the resumed run was bit-exact."""

    batches: int
    cut: int
    difference: str | None

    def __str__(self) -> str:
        if self.difference is not None:
            return f"NOT exact: {self.difference}"
        return (
            f"bit-exact: {self.batches} batches in one go equal {self.cut} batches, a new "
            f"process and {self.batches - self.cut} more, in samples, metrics, learning rates, "
            "random "
            "states, weights and optimizers."
        )


def verify_resume(
    script: str | os.PathLike[str],
    arguments: list[str] | None = None,
    batches: int = 20,
    cut: int | None = None,
    timeout_seconds: float = 600,
) -> Report:
    """Run a training script whole and in two parts, and compare.

    Only the script's first `fit` counts, on one rank. A script that sets no seed gets one.

    Args:
        script: The file that one would start with `python`.
        arguments: Its command line arguments.
        batches: How many batches to train.
        cut: After how many batches to stop and start again; by default in the middle.
        timeout_seconds: Limit for each of the three runs.
    """
    if cut is None:
        cut = batches // 2
    if not 0 < cut < batches:
        raise ValueError(f"`cut` must be between 1 and {batches - 1}, got {cut}.")
    if not pathlib.Path(script).is_file():
        raise FileNotFoundError(f"There is no script {script}.")

    def run(plan: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "determined.pytorch.verify_resume", "--part"]
        command += [json.dumps(plan), str(script), *(arguments or [])]
        # What is trained here only to be compared is no run of the user's.
        environment = {**os.environ, TRACKING_VARIABLE: "off"}
        done = subprocess.run(
            command, timeout=timeout_seconds, capture_output=True, text=True, env=environment
        )
        if done.returncode or not pathlib.Path(plan["trace"]).exists():
            raise RuntimeError(
                f"{script} failed in the {plan['name']} run (status {done.returncode}):\n"
                f"{done.stderr.strip() or 'it never called Trainer.fit'}"
            )

    return compare(run, batches, cut)


def compare(run: Run, batches: int, cut: int) -> Report:
    """Let `run` carry out the three parts, and compare their traces."""
    with tempfile.TemporaryDirectory(prefix="determined-verify-") as directory:

        def trace(name: str, **part: Any) -> dict[str, Any]:
            path = pathlib.Path(directory, f"{name}.json")
            plan = {
                "name": name,
                "trace": str(path),
                "storage": str(path.with_suffix(".storage")),
                "batches": batches,
                "cut": cut,
                "stop_after": None,
                "checkpoint": None,
                **part,
            }
            run(plan)
            record: dict[str, Any] = json.loads(path.read_text())
            return record

        whole = trace("uncut")
        first = trace("first", stop_after=cut)
        second = trace("second", checkpoint=first["checkpoint"])
    before = first["events"][:-1]  # the last one is about the weights at the cut
    while before and before[-1]["stage"] in ("before validation", "on_validation_start"):
        del before[-1]  # the stop came in a validation, which starts again after the resume
    difference = _difference(whole["events"], before, second["events"])
    if difference is not None and difference.startswith("after"):
        difference += _suspects(whole["attributes"], second["attributes"])
    return Report(batches, cut, difference)


def _suspects(expected: dict[str, str], found: dict[str, str]) -> str:
    """Name what the trial keeps to itself and did not have again after the resume."""
    names = [name for name, digest in expected.items() if found.get(name) != digest]
    if not names:
        return ""
    return (
        f" No checkpoint holds {_listed(names)}, which the resumed run started with new values: "
        "pass models, optimizers and schedulers through context.wrap_..., and keep the rest in "
        "the state_dict of a callback."
    )


def _difference(whole: list[Event], first: list[Event], second: list[Event]) -> str | None:
    found = _first_unequal(whole[: len(first)], first)
    if found is not None:
        return (
            f"two runs from the same start already differ, before any interruption: {found}. Seed "
            "everything with pytorch.init(seed=...), and avoid randomness that no seed controls."
        )
    found = _first_unequal(whole[len(first) :], second)
    return None if found is None else f"after the resume, {found}."


def _first_unequal(expected: list[Event], found: list[Event]) -> str | None:
    for one, other in zip(expected, found, strict=False):
        if (one["stage"], one["batch"]) != (other["stage"], other["batch"]):
            return (
                f"the run was {_place(other)} where it should have been {_place(one)}: callbacks "
                "or periods depend on something other than the number of batches"
            )
        if one["samples"] != other["samples"]:
            return _other_samples(one, other)
        names = [n for n, value in one["digests"].items() if other["digests"].get(n) != value]
        if names or one["digests"].keys() != other["digests"].keys():
            names = names or sorted(one["digests"].keys() ^ other["digests"].keys())
            verb = "differs" if len(names) == 1 else "differ"
            return f"{_place(one)}, {_listed(names)} {verb}{_hint(one, names[0])}"
    if len(expected) != len(found):
        return f"{len(found)} steps were seen where {len(expected)} were expected"
    return None


def _other_samples(one: Event, other: Event) -> str:
    expected, found = one["samples"] or [], other["samples"] or []
    pairs = enumerate(zip(expected, found, strict=False))
    position = next((i for i, (a, b) in pairs if a != b), min(len(expected), len(found)))
    return (
        f"batch {one['batch']} has other samples: from position {position} on, "
        f"{_listed(found[position:])} where {_listed(expected[position:])} were expected. The "
        "sampler depends on more than the epoch"
    )


def _place(event: Event) -> str:
    stage, batch = event["stage"], event["batch"]
    places = {
        "before": f"just before batch {batch} was fetched",
        "before validation": f"just before the validation after batch {batch}",
        "fetching": f"in fetching batch {batch}",
        "train_batch": f"in train_batch of batch {batch}",
        "validation": f"in the validation after batch {batch}",
        "end": "at the end of training",
    }
    return places.get(stage) or f"in the callbacks' {stage}, batch {batch}"


def _listed(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return (", ".join(names[:_SHOWN]) or "none") + (f" and {rest} more" if rest > 0 else "")


def _hint(event: Event, name: str) -> str:
    stage = event["stage"]
    if name.startswith("batch") and event["samples"]:
        return (
            f": the same samples ({_listed(event['samples'])}) gave different data, so their "
            "augmentation uses its own generator, or keeps state"
        )
    if name.startswith("batch"):
        return ": the loader gave different samples, a different order or different augmentation"
    if name.startswith("optimizer"):
        return ": is all its state in its state_dict?"
    if name.startswith("the random state") and stage.startswith("before"):
        return (
            ": something drew from it since the previous batch, such as a callback for reports, "
            "checkpoints or epochs, or code that runs only in a fresh process"
        )
    if name.startswith("the random state"):
        return (
            ": this stage drew a different number of random numbers than in the uninterrupted run"
        )
    return ""
