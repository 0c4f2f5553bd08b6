"""Prove on a user's own script that a run which is cut and resumed equals one that is not.

    python -m determined.pytorch.verify_resume [--batches N] [--cut K] train.py [ARGUMENTS...]

The script runs three times, each in a process of its own: N batches at once; K batches, where it is
stopped as a preemption would; and the rest, from the checkpoint. Batches, metrics, random states,
weights and optimizers are compared bit by bit. Exit status 0: equal; 1: the first difference is
named.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import inspect
import json
import os
import pathlib
import random
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from determined.pytorch import _trainer
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context import PyTorchTrialContext
from determined.pytorch._parallel import inner_module
from determined.pytorch._schedule import Batch

_SEED = 0


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcome: `difference` is None when the resumed run was bit-exact."""

    batches: int
    cut: int
    difference: str | None

    def __str__(self) -> str:
        if self.difference is None:
            return (
                f"bit-exact: {self.batches} batches at once equal {self.cut} batches, a new "
                "process "
                f"and {self.batches - self.cut} more, in data, metrics, random states, weights and "
                "optimizers."
            )
        return f"NOT exact: {self.difference}"


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
        raise ValueError(f"`cut` must lie between 1 and {batches - 1}, got {cut}.")
    if not pathlib.Path(script).is_file():
        raise FileNotFoundError(f"There is no script {script}.")
    with tempfile.TemporaryDirectory(prefix="determined-verify-") as directory:
        root = pathlib.Path(directory)

        def run(name: str, **part: Any) -> list[dict[str, Any]]:
            trace = root / f"{name}.json"
            plan = {
                "trace": str(trace),
                "storage": str(root / f"{name}-storage"),
                "batches": batches,
                "stop_after": None,
                "checkpoint": None,
                **part,
            }
            command = [sys.executable, "-m", "determined.pytorch.verify_resume", "--part"]
            command += [json.dumps(plan), str(script), *(arguments or [])]
            done = subprocess.run(command, timeout=timeout_seconds, capture_output=True, text=True)
            if done.returncode or not trace.exists():
                raise RuntimeError(
                    f"{script} failed in the {name} run (status {done.returncode}):\n"
                    f"{done.stderr.strip() or 'it never called Trainer.fit'}"
                )
            events: list[dict[str, Any]] = json.loads(trace.read_text())
            return events

        whole = run("uncut")
        first = run("first", stop_after=cut)
        second = run("second", checkpoint=first[-1]["checkpoint"])
    # The first part ends with the weights at the cut and the checkpoint; neither is in the others.
    return Report(batches, cut, _difference(whole, first[:-2], second))


# Comparing.


def _difference(
    whole: list[dict[str, Any]],
    first: list[dict[str, Any]],
    second: list[dict[str, Any]],
) -> str | None:
    found = _first_unequal(whole[: len(first)], first)
    if found is not None:
        return (
            f"two runs from the same start already differ, before any cut: {found}. Seed "
            "everything "
            "with pytorch.init(seed=...), and avoid randomness that no seed controls."
        )
    found = _first_unequal(whole[len(first) :], second)
    return None if found is None else f"after the resume, {found}."


def _first_unequal(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> str | None:
    for one, other in zip(expected, found, strict=False):
        if (one["batch"], one["what"]) != (other["batch"], other["what"]):
            return (
                f"{_place(other)} came where {_place(one)} was expected: the callbacks or periods "
                "depend on something besides the number of batches"
            )
        for part, digest in one["digests"].items():
            if other["digests"].get(part) != digest:
                return f"{_place(one)}: {part} differs{_hint(part)}"
    if len(expected) != len(found):
        return f"{len(found)} steps were seen where {len(expected)} were expected"
    return None


def _place(event: dict[str, Any]) -> str:
    return f"{event['what']} of batch {event['batch']}"


def _hint(part: str) -> str:
    if part.startswith("random state"):
        return (
            ": something drew from it a different number of times since the step before, for "
            "example "
            "a loader without workers, a callback, or code that runs only in a fresh process"
        )
    if part.startswith("batch"):
        return ": the loader gave other samples, another order or another augmentation"
    if part.startswith("optimizer"):
        return ": is all its state in its state_dict?"
    return ""


# Recording, in the process of one part.


class _Recorder(PyTorchCallback):
    """Writes down what happened, as digests."""

    def __init__(self, context: PyTorchTrialContext, stop_after: int | None) -> None:
        self.events: list[dict[str, Any]] = []
        self._context = context
        self._stop_after = stop_after
        self._batch = -1

    def on_training_start(self) -> None:
        self._batch = self._context.get_initial_batch() - 1

    def on_training_batch_start(self, epoch_idx: int, batch_idx: int, batch: Any) -> None:
        self._batch = batch_idx
        parts = {f"batch{path}": _digest(leaf) for path, leaf in _leaves(batch)}
        self._record("start", parts)

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        self._record("end of training", {f"metric {k}": _digest(v) for k, v in metrics.items()})
        if self._stop_after == batch_idx + 1:
            self._context._core._backend.request_preemption()  # type: ignore[attr-defined]  # local

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self._record("validation", {f"metric {k}": _digest(v) for k, v in metrics.items()})

    def on_trial_shutdown(self) -> None:
        parts: dict[str, str] = {}
        for index, model in enumerate(self._context.models):
            for name, tensor in inner_module(model).state_dict().items():
                parts[f"weight {name} of model {index}"] = _digest(tensor)
        for index, optimizer in enumerate(self._context.optimizers):
            for path, leaf in _leaves(optimizer.state_dict()):
                parts[f"optimizer {index}{path}"] = _digest(leaf)
        self._record("end", parts)

    def _record(self, what: str, digests: dict[str, str]) -> None:
        digests = {**digests, **_random_states()}
        self.events.append({"batch": self._batch, "what": what, "digests": digests})


def _random_states() -> dict[str, str]:
    return {
        "random state of torch": _digest(torch.get_rng_state()),
        "random state of numpy": _digest(repr(np.random.get_state(legacy=True))),
        "random state of Python": _digest(repr(random.getstate())),
    }


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _leaves(entry, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, entry in enumerate(value):
            yield from _leaves(entry, f"{path}[{index}]")
    else:
        yield path, value


def _digest(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = value.float() if value.dtype == torch.bfloat16 else value
        value = value.numpy()
    data = value.tobytes() if isinstance(value, (np.ndarray, np.generic)) else repr(value).encode()
    return hashlib.sha256(data).hexdigest()[:16]


def _run_part(plan: dict[str, Any], script: str, arguments: list[str]) -> None:
    """Run the script with `init` and `fit` bent to this part of the proof."""
    init, fit = _trainer.init, _trainer.Trainer.fit

    def bent_init(**options: Any) -> Any:
        if options.get("seed") is None:
            options["seed"] = _SEED
        options.update(checkpoint_storage=plan["storage"], enable_tensorboard_logging=False)
        return init(**options)

    def bent_fit(trainer: _trainer.Trainer, *positional: Any, **options: Any) -> None:
        options = inspect.signature(fit).bind(trainer, *positional, **options).arguments
        del options["self"]
        options.update(
            max_length=Batch(plan["batches"]),
            latest_checkpoint=plan["checkpoint"],
            checkpoint_policy="none",
            checkpoint_period=None,
            progress=False,
        )
        recorder = _Recorder(trainer._context, plan["stop_after"])
        build_callbacks = trainer._trial.build_callbacks
        trainer._trial.build_callbacks = lambda: {  # type: ignore[method-assign]  # one more callback
            **build_callbacks(),
            "verify_resume": recorder,
        }
        fit(trainer, **options)
        events = recorder.events
        if plan["stop_after"] is not None:
            events.append({"checkpoint": trainer.latest_checkpoint})
        pathlib.Path(plan["trace"]).write_text(json.dumps(events))
        raise SystemExit(0)  # what the script does after training is not part of the proof

    _replace_everywhere(init, bent_init)
    setattr(_trainer.Trainer, "fit", bent_fit)  # noqa: B010  # in this process only
    sys.argv = [script, *arguments]
    sys.path[0] = str(pathlib.Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


def _replace_everywhere(old: object, new: object) -> None:
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("determined"):
            for name, value in list(vars(module).items()):
                if value is old:
                    setattr(module, name, new)


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m determined.pytorch.verify_resume",
        description="Train N batches whole, then cut and resumed, and compare bit by bit.",
    )
    parser.add_argument("--batches", type=int, default=20, metavar="N", help="default: 20")
    parser.add_argument("--cut", type=int, metavar="K", help="stop after K batches (default: N/2)")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("script", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its own arguments")
    options = parser.parse_args(argv)
    if options.part is not None:
        _run_part(json.loads(options.part), options.script, options.arguments)
        return 0
    try:
        report = verify_resume(options.script, options.arguments, options.batches, options.cut)
    except (ValueError, OSError, RuntimeError, subprocess.TimeoutExpired) as e:
        parser.exit(2, f"{parser.prog}: {e}\n")
    sys.stdout.write(f"{report}\n")
    return 0 if report.difference is None else 1


if __name__ == "__main__":
    sys.exit(main())
