"""Where the time goes: times the parts of training by wrapping their calls, only when asked to."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from determined.pytorch._context import PyTorchTrialContext
from determined.pytorch._hooks import Hooks

# Parts in the order of the table, with what they mean.
PARTS = {
    "data": "waiting for the loader",
    "copy": "moving batches to the device",
    "train_batch": "the trial's own code, without what follows",
    "backward": "context.backward",
    "optimizer": "context.step_optimizer",
    "scheduler": "learning-rate steps",
    "callbacks": "the trial's callbacks",
    "metrics": "collecting, averaging and reporting metrics",
    "validation": "all of it",
    "checkpoint": "training waits for a save",
}
_BACKGROUND = "checkpoint in the background"
_GPU_PARTS = ("copy", "train_batch", "backward", "optimizer")


@dataclasses.dataclass(frozen=True)
class ProfileOptions:
    """What `Trainer.configure_profiler` was told."""

    sync_timings: bool = True
    enabled: bool = False
    begin_on_batch: int = 0
    end_after_batch: int | None = None


class TimeProfile:
    """Adds up seconds per part; time in a nested part counts for that one alone."""

    def __init__(self, options: ProfileOptions, device: torch.device) -> None:
        self._options = options
        self._syncs = options.sync_timings and device.type != "cpu"
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.calls: collections.Counter[str] = collections.Counter()
        self.background_seconds = 0.0
        self.batches = 0
        self._nested = 0.0
        self._began: float | None = None
        self._wall = 0.0
        self._thread = threading.get_ident()

    @property
    def wall_seconds(self) -> float:
        """Return how long the profiled batches took, with everything in between."""
        running = time.perf_counter() - self._began if self._began is not None else 0.0
        return self._wall + running

    def at_batch(self, batch_idx: int) -> None:
        """Switch on at the first wanted batch, off after the last."""
        last = self._options.end_after_batch
        wanted = batch_idx >= self._options.begin_on_batch and (last is None or batch_idx <= last)
        if wanted and self._began is None:
            self._began = time.perf_counter()
        elif not wanted:
            self.stop()
        self.batches += wanted

    def stop(self) -> None:
        """Stop the clock."""
        self._wall, self._began = self.wall_seconds, None

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with its time added to `part`."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._began is None or threading.get_ident() != self._thread:
                return function(*args, **kwargs)
            around, self._nested = self._nested, 0.0
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                if self._syncs and part in _GPU_PARTS:
                    torch.accelerator.synchronize()
                elapsed = time.perf_counter() - began
                self.seconds[part] += elapsed - self._nested
                self.calls[part] += 1
                self._nested = around + elapsed

        return call

    def timed_in_background(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, which runs beside training, with its time added up."""

        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.background_seconds += time.perf_counter() - began

        return call

    def shares(self) -> dict[str, float]:
        """Return each part's share of the time, and what is in none of them."""
        wall = max(self.wall_seconds, 1e-9)
        shares = {part: seconds / wall for part, seconds in self.seconds.items()}
        return {**shares, "other": max(0.0, 1.0 - sum(shares.values()))}

    def advice(self) -> list[str]:
        """Return what the numbers suggest to change."""
        shares = self.shares()
        tips = {
            "data": "raise the loader's num_workers, or make the dataset cheaper",
            "copy": "set pin_memory=True in the loader",
            "callbacks": "do less in per-batch hooks",
            "metrics": "return fewer metrics, or report less often (reporting_period)",
            "validation": "validate less often (validation_period)",
            "checkpoint": "save less often, or let saves run in the background",
        }
        return [
            f"{part} takes {shares[part]:.0%} of the time: {tip}."
            for part, tip in tips.items()
            if shares[part] >= 0.25
        ]

    def write(self, path: pathlib.Path, system: list[tuple[str, dict[str, Any]]]) -> None:
        """Write the result as JSON."""
        shares = self.shares()
        result = {
            "batches": self.batches,
            "wall_seconds": self.wall_seconds,
            "parts": {
                part: {
                    "seconds": seconds,
                    "share": shares[part],
                    "calls": self.calls[part],
                }
                for part, seconds in self.seconds.items()
            },
            "other_share": shares["other"],
            "background_checkpoint_seconds": self.background_seconds,
            "advice": self.advice(),
            "system": system,
        }
        path.write_text(json.dumps(result, indent=2))

    def table(self) -> Any:
        """Return the result as a table for the terminal."""
        from rich.table import Table

        table = Table(
            title=f"Where did the time go? ({self.batches} batches)", title_justify="left"
        )
        table.add_column("part")
        for heading in ("seconds", "share", "per batch"):
            table.add_column(heading, justify="right")
        table.add_column("what", style="dim")
        shares = self.shares()
        rows = [(part, self.seconds[part], PARTS[part]) for part in PARTS]
        rows.append(("other", shares["other"] * self.wall_seconds, "the loop itself"))
        for part, seconds, what in rows:
            per_batch = seconds / max(self.batches, 1) * 1e6
            table.add_row(
                part, f"{seconds:.3f}", f"{shares[part]:.1%}", f"{per_batch:.0f} us", what
            )
        if self.background_seconds:
            beside = f"{self.background_seconds:.3f}"
            table.add_row(_BACKGROUND, beside, "", "", "beside training", style="dim")
        return table


class TimedData:
    """Training data whose waiting time is measured; also tells the profile the batch."""

    def __init__(self, data: Any, profile: TimeProfile, batch_idx: int) -> None:
        self._data = data
        self._profile = profile
        self._batch_idx = batch_idx
        self._next = profile.timed("data", data.__next__)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._profile.at_batch(self._batch_idx)
        self._batch_idx += 1
        return self._next()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)


def profile_loop(profile: TimeProfile, loop: Any) -> Callable[[], None]:
    """Time the parts of a `TrainLoop` and what it uses; the returned function undoes the rest."""
    parts = {
        "_train_batch": "train_batch",
        "_finish_batch": "metrics",
        "_report_training": "metrics",
        "_validate": "validation",
        "_save": "checkpoint",
    }
    for name, part in parts.items():
        setattr(loop, name, profile.timed(part, getattr(loop, name)))
    loop._training_data = TimedData(loop._training_data, profile, loop.state.batches_trained)
    loop._saver._write = profile.timed_in_background(loop._saver._write)
    _profile_hooks(profile, loop._hooks)
    return _profile_context(profile, loop._context)


def _profile_context(profile: TimeProfile, context: PyTorchTrialContext) -> Callable[[], None]:
    """Time what the trial calls on its context; the returned function undoes it."""
    parts = {"to_device": "copy", "backward": "backward", "step_optimizer": "optimizer"}
    for name, part in parts.items():
        setattr(context, name, profile.timed(part, getattr(context, name)))
    steps = [(scheduler, scheduler.step) for scheduler in context.lr_schedulers]
    for scheduler, step in steps:
        scheduler.step = profile.timed("scheduler", step)  # type: ignore[method-assign]  # undone

    def undo() -> None:
        for name in parts:
            delattr(context, name)
        for scheduler, _ in steps:
            del scheduler.step

    return undo


def _profile_hooks(profile: TimeProfile, hooks: Hooks) -> None:
    """Time the callbacks."""
    for methods in hooks._calls.values():
        methods[:] = [profile.timed("callbacks", method) for method in methods]
