"""Where the time goes: an observer that times the parts of training, only when asked to."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import torch

from determined.core._profiler import ProfilerContext
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._instrumentation.observer import UNOBSERVED, Observer, Part

P = ParamSpec("P")
R = TypeVar("R")

# Parts in the order of the table, with what they mean.
PARTS = {
    "data": "waiting for the loader",
    "copy": "moving batches to the device",
    "train_batch": "the rest of train_batch",
    "backward": "context.backward",
    "optimizer": "context.step_optimizer",
    "scheduler": "learning-rate steps",
    "callbacks": "the trial's callbacks",
    "metrics": "collecting and reporting",
    "validation": "all of it",
    "checkpoint": "waiting for saves",
}
_BACKGROUND = "saving, beside training"
_GPU_PARTS = ("copy", "train_batch", "backward", "optimizer")
_WORTH_A_TIP, _MOSTLY_MODEL = 0.25, 0.7
_MODEL_PARTS = ("train_batch", "backward", "optimizer")
_SystemSamples = list[tuple[str, dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class ProfileOptions:
    """What `Trainer.configure_profiler` was told."""

    sync_timings: bool = True
    enabled: bool = False
    begin_on_batch: int = 0
    end_after_batch: int | None = None


class TimeProfile:
    """Adds up seconds per part; time in a nested part counts for that one alone.

    `machine` samples the load of the machine during the same batches.
    """

    def __init__(
        self, options: ProfileOptions, device: torch.device, machine: ProfilerContext
    ) -> None:
        self._options = options
        self._machine = machine
        self._device = device.type
        self._syncs = options.sync_timings and device.type != "cpu"
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.calls: collections.Counter[str] = collections.Counter()
        # In train_batch alone: neither this thread nor the device worked meanwhile.
        self.idle_seconds = 0.0
        self.background_seconds = 0.0
        self.batches = 0
        self._nested = self._nested_work = 0.0
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
            self._machine.on(sampling_interval=0.5, samples_per_report=2)
            self._began = time.perf_counter()
        elif not wanted:
            self.stop()
        self.batches += wanted

    def stop(self) -> None:
        """Stop the clock, and report what was sampled last."""
        self._wall, self._began = self.wall_seconds, None
        self._machine.off()

    def timed(self, part: str, function: Callable[P, R]) -> Callable[P, R]:
        """Return `function` with its time added to `part`."""

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._began is None or threading.get_ident() != self._thread:
                return function(*args, **kwargs)
            around, self._nested = self._nested, 0.0
            work_around, self._nested_work = self._nested_work, 0.0
            began, work_began = time.perf_counter(), time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                work = time.thread_time() - work_began
                if part == "train_batch":
                    own = time.perf_counter() - began - self._nested
                    self.idle_seconds += max(0.0, own - (work - self._nested_work))
                if self._syncs and part in _GPU_PARTS:
                    torch.accelerator.synchronize()
                elapsed = time.perf_counter() - began
                self.seconds[part] += elapsed - self._nested
                self.calls[part] += 1
                self._nested, self._nested_work = around + elapsed, work_around + work

        return call

    def timed_in_background(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return `function` with its time added up when it runs in the background."""

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if threading.get_ident() == self._thread:  # a save that training waits for
                return function(*args, **kwargs)
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
        idle = self.idle_seconds / max(self.wall_seconds, 1e-9)
        tips = {
            "data": "raise the loader's num_workers, or make the dataset cheaper",
            "callbacks": "do less in per-batch hooks",
            "metrics": "return fewer metrics, or report less often (reporting_period)",
            "validation": "validate less often (validation_period)",
            "checkpoint": "save less often, or let saves run in the background",
        }
        if self._device not in ("cpu", "mps"):
            tips["copy"] = "set pin_memory=True in the loader"
        lines = [
            f"{part} takes {shares[part]:.0%} of the time: {tip}."
            for part, tip in tips.items()
            if shares[part] >= _WORTH_A_TIP
        ]
        if idle >= _WORTH_A_TIP:
            lines.append(
                f"train_batch is idle {idle:.0%} of the time: look for sleeps, file access and "
                "downloads in it, or for other programs that keep the CPU busy."
            )
        of_model = sum(shares[part] for part in _MODEL_PARTS) - idle
        if not lines and of_model >= _MOSTLY_MODEL:
            amp = "" if self._device == "cpu" else ", context.experimental.use_amp()"
            lines.append(
                f"The model itself takes {of_model:.0%} of the time: larger batches"
                f"{amp} or wrap_model(..., compile=True) may help."
            )
        return lines

    def write(self, path: pathlib.Path, system: _SystemSamples) -> None:
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
            "train_batch_idle_seconds": self.idle_seconds,
            "background_checkpoint_seconds": self.background_seconds,
            "advice": self.advice(),
            "system": system,
        }
        path.write_text(json.dumps(result, indent=2))

    def table(self) -> Any:
        """Return the result as a table for the terminal."""
        from rich import box
        from rich.bar import Bar
        from rich.table import Table

        title = f"Where did the time go? {self.wall_seconds:.1f} s for {self.batches} batches"
        table = Table(
            title=title,
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
        )
        table.add_column("part", no_wrap=True)
        for heading in ("seconds", "per batch", "share"):
            table.add_column(heading, justify="right")
        table.add_column("")
        table.add_column("what it is", style="dim", no_wrap=True)
        shares = self.shares()
        rows = [(part, self.seconds[part], PARTS[part]) for part in PARTS]
        rows.append(("other", shares["other"] * self.wall_seconds, "the loop itself"))
        for part, seconds, what in rows:
            table.add_row(
                part,
                f"{seconds:.3f}",
                _short(seconds / max(self.batches, 1)),
                f"{shares[part]:.1%}",
                Bar(1, 0, shares[part], width=20, color="cyan"),
                what,
                style="" if shares[part] >= 0.001 else "dim",
            )
        if self.background_seconds:
            beside = f"{self.background_seconds:.3f}"
            table.add_row("", beside, "", "", "", _BACKGROUND, style="dim")
        return table


def machine_line(system: _SystemSamples) -> str:
    """Return in one line how busy the machine was."""
    found: dict[str, list[float]] = {"cpu_util_simple": [], "memory_free": [], "gpu_util": []}

    def look(sample: dict[str, Any]) -> None:
        for name, value in sample.items():
            if isinstance(value, dict):
                look(value)
            elif name in found:
                found[name].append(value)

    for _, samples in system:
        look(samples)
    cpu, memory, gpu = found.values()
    facts = [f"processor {sum(cpu) / len(cpu):.0f}% busy"] if cpu else []
    facts += [f"GPU {sum(gpu) / len(gpu):.0f}% busy"] if gpu else []
    facts += [f"{min(memory) / 1e9:.1f} GB of memory free"] if memory else []
    return f"The machine meanwhile: {', '.join(facts)}." if facts else ""


def _short(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 0.01 else f"{seconds * 1e6:.0f} us"


class ProfileObserver(Observer):
    """Times the parts of a fit, and lets another observer see them too."""

    def __init__(
        self, profile: TimeProfile, context: PyTorchTrialContext, other: Observer = UNOBSERVED
    ) -> None:
        self._profile = profile
        self._context = context
        self._other = other

    def watch(self, part: Part, call: Callable[P, R]) -> Callable[P, R]:
        call = self._other.watch(part, call)
        if part == "background save":
            return self._profile.timed_in_background(call)
        timed = self._profile.timed(part, call)
        return self._from_batch_to_batch(timed) if part == "data" else timed

    def callbacks(self, given: dict[str, PyTorchCallback]) -> dict[str, PyTorchCallback]:
        return self._other.callbacks(given)

    def indices(self, batches: Iterator[Any]) -> Iterator[Any]:
        return self._other.indices(batches)

    def _from_batch_to_batch(self, fetch: Callable[P, R]) -> Callable[P, R]:
        """Return `fetch` so that each batch, which begins with it, is measured if it is wanted."""

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            self._profile.at_batch(self._context.current_train_batch())
            return fetch(*args, **kwargs)

        return call
