from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined import pytorch
from determined.pytorch import Batch
from determined.pytorch.callbacks import EarlyStopping
from tests.pytorch.callbacks.trials import MakeCallbacks, fit
from tests.support.trials import LineTrial, checkpoints, the_checkpoint
from tests.support.workers import run_workers

VALUES = [5.0, 4.0, 4.5, 4.25, 3.0, 3.5, 3.5, 3.5, 1.0, 1.0]


class Scripted(LineTrial):
    """The n-th batch is followed by the n-th value as the metric."""

    num_batches = 20

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"error": VALUES[self.context.current_train_batch()]}


def _stopping(**options: Any) -> MakeCallbacks:
    return lambda context: {"stopping": EarlyStopping(context, "error", **options)}


def _batches(patience: int, max_batches: int = 10, **options: Any) -> list[int]:
    return fit(
        _stopping(patience=patience),
        max_batches,
        Scripted,
        **{"validation_period": Batch(1), **options},
    ).batches


@pytest.mark.parametrize(("patience", "trained"), [(1, 3), (2, 4), (3, 8), (4, 10)])
def test_training_stops_after_so_many_validations_without_a_better_one(
    patience: int, trained: int
) -> None:
    assert len(_batches(patience)) == trained
    assert max(checkpoints()) == trained


@pytest.mark.parametrize("cut", [1, 3, 6, 7])
def test_resumed_run_waits_on_where_it_left(cut: int) -> None:
    _batches(3, max_batches=cut)
    assert _batches(3, latest_checkpoint=the_checkpoint(cut)) == list(range(cut, 8))


def test_resuming_a_stopped_run_trains_nothing() -> None:
    _batches(3)
    before = checkpoints()
    assert _batches(3, latest_checkpoint=the_checkpoint(8)) == []
    assert checkpoints() == before


def test_stopped_run_goes_on_with_more_patience() -> None:
    _batches(3)
    assert _batches(4, latest_checkpoint=the_checkpoint(8)) == [8, 9]


def test_missing_metric_is_an_error_that_lists_the_metrics() -> None:
    with pytest.raises(ValueError, match=r"watches the validation metric 'loss'.*\['error'\]"):
        fit(lambda context: {"s": EarlyStopping(context, "loss")}, 1, Scripted)


@pytest.mark.parametrize("options", [{"patience": 0}, {"patience": 1.5}, {"min_delta": -1.0}])
def test_bad_arguments_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        fit(_stopping(**options), 1, Scripted)


def test_larger_is_better_mirrors_smaller() -> None:
    with pytorch.init(seed=0, enable_tensorboard_logging=False) as context:

        def outcome(values: list[float], sign: int, patience: int, delta: int) -> Any:
            context.set_stop_requested(False)
            callback = EarlyStopping(
                context, "m", patience, smaller_is_better=sign == 1, min_delta=delta
            )
            stopped = []
            for value in values:
                callback.on_validation_end({"m": sign * value})
                stopped.append(context.get_stop_requested())
            return stopped, None if callback.best is None else sign * callback.best

        @given(
            values=st.lists(
                st.one_of(st.just(math.nan), st.integers(-5, 5).map(float)), max_size=12
            ),
            patience=st.integers(1, 4),
            delta=st.integers(0, 2),
        )
        def check(values: list[float], patience: int, delta: int) -> None:
            stopped, best = outcome(values, 1, patience, delta)
            assert (stopped, best) == outcome(values, -1, patience, delta)
            numbers = [value for value in values if not math.isnan(value)]
            if delta == 0:
                assert best == min(numbers, default=None)

        check()


@pytest.mark.multiprocess
def test_ranks_stop_after_the_same_batch(tmp_path: Path) -> None:
    assert run_workers(2, _train_on_a_rank, str(tmp_path)) == [list(range(8))] * 2


def _train_on_a_rank(directory: str) -> list[int]:
    os.chdir(directory)
    return _batches(3, init={"checkpoint_storage": f"{directory}/storage"})
