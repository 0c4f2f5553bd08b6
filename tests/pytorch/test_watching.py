"""The law that watching changes nothing: how a run is looked at does not move its weights.

Validations, checkpoints, reports, displays, trackers and our monitoring callbacks may come as
often as they like, and `fit` may end and be continued anywhere: the losses of all batches, the last
weights, the optimizer and the random state behind training are the same, bit for bit.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from determined import pytorch
from determined.pytorch import Batch, Epoch, callbacks
from determined.pytorch._data.seed import seed_everything
from tests.support.exact import Case, ExactTrial, Part
from tests.support.faults import at_least
from tests.support.resumable import digest
from tests.support.workers import run_workers

TOTAL = 11
CASE = Case(length=9, batch_size=2, aggregation=2)  # five batches make an epoch
MONITORS = ("average", "gradients", "rates", "summary", "tracker")


@dataclasses.dataclass(frozen=True)
class Watch:
    """How a run is looked at, and at which lengths `fit` ends before it is continued."""

    validation_period: pytorch.TrainUnit | None = None
    step_zero_validation: bool = False
    checkpoint_period: pytorch.TrainUnit | None = None
    checkpoint_policy: str = "none"
    reporting_period: pytorch.TrainUnit | None = Batch(100)  # never changes
    progress: bool = False
    tensorboard: bool = False
    profiling: bool = False
    monitors: frozenset[str] = frozenset()
    limit_validation_batches: int | None = None
    lengths: tuple[int, ...] = ()
    same_trainer: bool = False


class WatchedTrial(ExactTrial):
    """An exact trial with monitoring callbacks."""

    monitors: frozenset[str] = frozenset()
    directory = Path()

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        context, file = self.context, self.directory / "metrics.csv"
        made: dict[str, Any] = {
            "average": lambda: callbacks.ExponentialMovingAverage(context, 0.9),
            "gradients": lambda: callbacks.GradientNorm(context),
            "rates": lambda: callbacks.LearningRateMonitor(context),
            "summary": lambda: callbacks.ModelSummary(context),
            "tracker": lambda: callbacks.CSVTracker(context, file),
        }
        return {**super().build_callbacks(), **{name: made[name]() for name in self.monitors}}


def run(case: Case, watch: Watch, directory: Path) -> Part:
    """Train to the end, in as many pieces as asked for, with seeds that every piece gets anew."""
    whole = Part()
    pieces = [*watch.lengths, TOTAL]
    for lengths in [pieces] if watch.same_trainer else [[length] for length in pieces]:
        whole += run_piece(case, watch, directory, lengths)
    return whole


def run_piece(case: Case, watch: Watch, directory: Path, lengths: list[int]) -> Part:
    """Train in one `init` block to each of the lengths in turn."""
    seed_everything(lengths[0])  # a new process would have other random numbers
    with pytorch.init(
        seed=7,
        aggregation_frequency=case.aggregation,
        checkpoint_storage=directory / "storage",
        tensorboard_path=directory / "tensorboard",
        enable_tensorboard_logging=watch.tensorboard,
        run_id="watched",
    ) as context:
        trial = WatchedTrial(context, case, None)
        trial.monitors, trial.directory = watch.monitors, directory
        trainer = pytorch.Trainer(trial, context)
        for length in lengths:
            trainer.fit(
                max_length=Batch(length),
                validation_period=watch.validation_period,
                step_zero_validation=watch.step_zero_validation,
                checkpoint_period=watch.checkpoint_period,
                checkpoint_policy=watch.checkpoint_policy,
                reporting_period=watch.reporting_period,
                progress=watch.progress,
                profiling_enabled=watch.profiling,
                limit_validation_batches=watch.limit_validation_batches,
                latest_checkpoint="latest",
                metric="error",
            )
        rng = torch.rand(()).item(), random.random(), float(np.random.rand())
    trial.part.end = digest([trial.model.state_dict(), trial.optimizer.state_dict(), rng])
    return trial.part


def seen_by_training(part: Part) -> Part:
    return dataclasses.replace(part, validations=[])


@functools.cache
def unwatched(case: Case) -> Part:
    with tempfile.TemporaryDirectory() as directory:
        part = run(case, Watch(), Path(directory))
    assert len(part.losses) == TOTAL
    return seen_by_training(part)


_periods = st.none() | st.integers(1, 6).map(Batch) | st.just(Epoch(1))
_watches = st.builds(
    Watch,
    validation_period=_periods,
    step_zero_validation=st.booleans(),
    checkpoint_period=_periods,
    checkpoint_policy=st.sampled_from(["best", "all", "none"]),
    reporting_period=_periods,
    progress=st.booleans(),
    tensorboard=st.booleans(),
    profiling=st.booleans(),
    monitors=st.frozensets(st.sampled_from(MONITORS)),
    limit_validation_batches=st.none() | st.integers(1, 2),
    lengths=st.lists(st.integers(1, TOTAL - 1), max_size=3, unique=True).map(
        lambda lengths: tuple(sorted(lengths))
    ),
    same_trainer=st.booleans(),
)
_ALL = Watch(
    Batch(2),
    True,
    Batch(3),
    "all",
    Batch(1),
    True,
    True,
    True,
    frozenset(MONITORS),
    None,
    (3, 4),
)


@settings(max_examples=at_least(12, 40), deadline=None)
@given(watch=_watches, kind=st.sampled_from(["shuffle", "numpy", "stream"]))
@example(watch=_ALL, kind="shuffle")
@example(watch=dataclasses.replace(_ALL, same_trainer=True), kind="stream")
@example(watch=Watch(lengths=(7,)), kind="shuffle")
def test_watching_changes_nothing(watch: Watch, kind: str) -> None:
    case = dataclasses.replace(CASE, kind=kind)
    with tempfile.TemporaryDirectory() as directory:
        assert seen_by_training(run(case, watch, Path(directory))) == unwatched(case)


def test_a_validation_repeated_at_a_position_measures_the_same(tmp_path: Path) -> None:
    once = run(CASE, Watch(validation_period=Batch(5)), tmp_path / "a")
    often = run(CASE, Watch(validation_period=Batch(1), lengths=(4,)), tmp_path / "b")
    errors = [metrics["error"] for metrics in often.validations]
    assert len(set(errors)) == TOTAL  # one after each batch, each with draws of its own
    assert [m["error"] for m in once.validations] == [errors[4], errors[9], errors[10]]


# Workers, ranks and new processes: the same law, on fewer cases.

_FEW = [
    Watch(validation_period=Batch(2), step_zero_validation=True, checkpoint_policy="all"),
    dataclasses.replace(_ALL, lengths=(5, 7)),
]


@pytest.mark.multiprocess
@pytest.mark.slow
@pytest.mark.parametrize("watch", _FEW)
def test_watching_changes_nothing_with_loader_workers(watch: Watch, tmp_path: Path) -> None:
    case = dataclasses.replace(CASE, num_workers=2)
    assert seen_by_training(run(case, watch, tmp_path)) == unwatched(case)


@pytest.mark.multiprocess
@pytest.mark.slow
@pytest.mark.parametrize("watch", _FEW)
@pytest.mark.parametrize(("size", "num_workers"), [(1, 0), (2, 0), (2, 2)])
def test_watching_changes_nothing_in_new_processes_and_on_ranks(
    watch: Watch, size: int, num_workers: int, tmp_path: Path
) -> None:
    case = dataclasses.replace(CASE, num_workers=num_workers)
    expected = run_workers(size, run_piece, case, Watch(), tmp_path / "plain", [TOTAL])
    pieces = [
        run_workers(size, run_piece, case, watch, tmp_path / "watched", [length])
        for length in (*watch.lengths, TOTAL)
    ]
    for rank, plain in enumerate(expected):
        whole = functools.reduce(lambda before, piece: before + piece[rank], pieces, Part())
        assert seen_by_training(whole) == seen_by_training(plain)
