"""Many runs, many batches, many checkpoints in one process: what it holds does not grow.

Memory is measured as what the process cannot give back: its resident size after a collection, and
the number of Python's blocks, which tells a single forgotten object from the system's noise. The
course is fitted by a line over the second half, when caches are full; the slope is the leak.
"""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.pytorch import Batch, DataLoader
from tests.support.faults import at_least, factor, in_memory  # noqa: F401  # a fixture
from tests.support.trials import LineTrial, checkpoints
from tests.support.victims import preload
from tests.support.workers import run_workers

FITS = at_least(120, 150)
BATCHES = 20_000 * factor()
CHECKPOINTS = 60 * factor()
SAMPLES = 20 * factor()
# Files and threads of a save that goes on at every sample of a quarter.
UNDER_WAY = 2


class Course:
    """Samples of what this process holds."""

    def __init__(self, steps: int) -> None:
        preload()
        self._process = psutil.Process()
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)  # of glibc
        self._period = max(1, steps // SAMPLES)
        self.memory: list[int] = []
        self.blocks: list[int] = []
        self.files: list[int] = []
        self.threads: list[int] = []
        self.seconds: list[float] = []
        self.positions: list[int] = []
        self._sampled = time.process_time()

    def sample(self, position: int) -> None:
        if position % self._period:
            return
        self.seconds.append(time.process_time() - self._sampled)
        gc.collect()
        self._trim(0)
        self.positions.append(position)
        self.memory.append(self._process.memory_info().rss)
        self.blocks.append(sys.getallocatedblocks())
        self.files.append(self._process.num_fds())
        self.threads.append(threading.active_count())
        self._sampled = time.process_time()

    def slope(self, course: list[int]) -> float:
        """Return what one more step costs, by least squares over the second half."""
        half = len(course) // 2
        steps, sizes = self.positions[half:], course[half:]
        step_mean, size_mean = sum(steps) / len(steps), sum(sizes) / len(sizes)
        spread = sum((step - step_mean) ** 2 for step in steps)
        return (
            sum(
                (step - step_mean) * (size - size_mean)
                for step, size in zip(steps, sizes, strict=True)
            )
            / spread
        )

    def summary(self) -> dict[str, Any]:
        return {
            "slope": self.slope(self.memory),
            "memory": self.memory,
            "blocks slope": self.slope(self.blocks),
            "blocks": self.blocks,
            "files": _lows(self.files),
            "threads": _lows(self.threads),
            "seconds": self._seconds_per_step(),
        }

    def _seconds_per_step(self) -> tuple[float, float]:
        """Return the processor time of a step in the second quarter and in the last."""
        quarter = len(self.seconds) // 4
        second, last = self.seconds[quarter : 2 * quarter], self.seconds[-quarter:]
        return statistics.median(second) / self._period, statistics.median(last) / self._period


def _lows(course: list[int]) -> tuple[int, int]:
    """Return the least of the third quarter and of the last."""
    half, last = len(course) // 2, len(course) * 3 // 4
    return min(course[half:last]), min(course[last:])


def assert_flat(
    summary: dict[str, Any], bytes_per_step: float, blocks_per_step: float, what: str
) -> None:
    slopes = f"{summary['slope']:.2f} bytes, {summary['blocks slope']:.3f} blocks each"
    # Shown, not judged: how long a step takes says as much about the machine.
    before, after = (f"{seconds * 1e6:.0f}" for seconds in summary["seconds"])
    times = f"{before} µs in the second quarter, {after} in the last"
    print(f"{what}: {slopes}; {times}")  # noqa: T201  # shown by pytest -rP
    assert summary["slope"] < bytes_per_step, summary
    assert summary["blocks slope"] < blocks_per_step, summary
    for earlier, later in (summary["files"], summary["threads"]):
        assert later <= earlier + UNDER_WAY, summary


def fit_often(folder: Path, count: int) -> dict[str, Any]:
    """Train a short trial again and again, as a search over hyperparameters in one process does."""
    os.chdir(folder)
    torch.set_num_threads(1)
    course = Course(count)
    for number in range(count):
        with pytorch.init(checkpoint_storage=folder / "storage") as context:
            trainer = pytorch.Trainer(LineTrial(context), context)
            trainer.fit(max_length=Batch(3), validation_period=Batch(1), checkpoint_policy="none")
        assert trainer.latest_checkpoint is not None
        shutil.rmtree(trainer.latest_checkpoint)
        course.sample(number)
    return course.summary()


class Tiny(LineTrial):
    def build_training_data_loader(self) -> DataLoader:
        x = torch.ones(64, 1)
        return DataLoader(TensorDataset(x, x), batch_size=1, shuffle=True)


class Sampling(pytorch.PyTorchCallback):
    def __init__(self, course: Course) -> None:
        self._course = course

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        self._course.sample(batch_idx)


class Silent(list[Any]):
    """A log that forgets."""

    def append(self, entry: Any) -> None:
        pass


def train_long(folder: Path, count: int) -> dict[str, Any]:
    """Train very many tiny batches with reports, event files and epochs."""
    os.chdir(folder)
    torch.set_num_threads(1)
    course = Course(count)
    with pytorch.init(checkpoint_storage=folder / "storage") as context:
        trial = Tiny(context, Silent())
        trial.callbacks = {"sampling": Sampling(course)}
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(count), validation_period=Batch(count // 10), checkpoint_policy="none"
        )
    return course.summary()


class Large(LineTrial):
    """Has half a megabyte of weights, so that a forgotten copy shows."""

    def __init__(self, context: Any) -> None:
        super().__init__(context, Silent())
        self.more = context.wrap_model(torch.nn.Linear(256, 256))
        context.wrap_optimizer(torch.optim.Adam(self.more.parameters()))


def save_often(folder: Path, count: int) -> dict[str, Any]:
    """Save after every batch and keep two."""
    os.chdir(folder)
    torch.set_num_threads(1)
    course = Course(count)
    config = {
        "checkpoint_storage": {
            "save_trial_latest": 2,
            "save_trial_best": 0,
            "save_experiment_best": 0,
        }
    }
    with pytorch.init(checkpoint_storage=folder / "storage", exp_conf=config) as context:
        trial = Large(context)
        trial.callbacks = {"sampling": Sampling(course)}
        pytorch.Trainer(trial, context).fit(max_length=Batch(count), checkpoint_period=Batch(1))
    return {**course.summary(), "kept": sorted(checkpoints(folder / "storage"))}


@pytest.mark.multiprocess
@pytest.mark.slow
@pytest.mark.timeout(120 + 2 * FITS)
def test_many_short_runs_leave_nothing_behind(tmp_path: Path) -> None:
    (summary,) = run_workers(
        1, fit_often, tmp_path, FITS, deadline_seconds=100 + FITS, process_group=False
    )
    # A forgotten trial or context would be some hundred blocks. Allocators and stacks of threads
    # grow by a megabyte now and then, which only many runs make small.
    assert_flat(summary, 100_000 if factor() == 1 else 20_000, 50, "fit")


@pytest.mark.multiprocess
@pytest.mark.slow
@pytest.mark.timeout(120 + BATCHES // 200)
def test_many_batches_leave_nothing_behind(tmp_path: Path) -> None:
    (summary,) = run_workers(
        1, train_long, tmp_path, BATCHES, deadline_seconds=100 + BATCHES // 200, process_group=False
    )
    # One Python float in a list for each batch would be one block. Pages are a coarser measure: 60
    # of them in the second half of the short form are 25 bytes a batch.
    assert_flat(summary, 40 if factor() == 1 else 20, 0.2, "batch")


@pytest.mark.multiprocess
@pytest.mark.slow
@pytest.mark.timeout(120 + 2 * CHECKPOINTS)
def test_many_checkpoints_leave_nothing_behind(tmp_path: Path) -> None:
    (summary,) = run_workers(
        1,
        save_often,
        tmp_path,
        CHECKPOINTS,
        deadline_seconds=100 + CHECKPOINTS,
        process_group=False,
    )
    # A copy of the state is 800 kB, and with the states of random generators some hundred blocks.
    assert_flat(summary, 200_000, 100, "checkpoint")
    assert summary["kept"] == [CHECKPOINTS - 1, CHECKPOINTS]
    left = [path.name for path in (tmp_path / "storage").iterdir() if path.name.startswith(".")]
    assert set(left) <= {".det-locks", ".det-runs"}
    assert not list((tmp_path / "storage" / ".det-locks").glob("*"))
