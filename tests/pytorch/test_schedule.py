"""Units of training and what falls due: pure functions, so laws are checked by hypothesis."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.core import Unit
from determined.pytorch import Batch, Epoch, TrainUnit
from determined.pytorch._schedule import (
    Schedule,
    _ShouldExit,
    _TrainBoundary,
    _TrainBoundaryType,
    _TrialState,
)

_values = st.one_of(
    st.integers(-2, 12),
    st.lists(st.integers(0, 40), max_size=5),
    st.frozensets(st.integers(0, 40), max_size=5),
    st.just(range(3, 30, 7)),
)
_units = st.builds(lambda kind, value: kind(value), st.sampled_from([Batch, Epoch]), _values)
_plans = st.dictionaries(st.sampled_from(_TrainBoundaryType), _units, min_size=1)
_ORDER = ["TRAIN", "VALIDATE", "CHECKPOINT", "REPORT"]


def _asked_after_every_batch(
    units: dict[_TrainBoundaryType, TrainUnit], epoch_length: int, batch_idx: int
) -> list[str]:
    """Test every boundary after the batch, as the loop of the specification does."""
    epoch_idx, batch_in_epoch = divmod(batch_idx, epoch_length)
    is_epoch_end = batch_in_epoch == epoch_length - 1
    reached = {
        kind.value
        for kind, unit in units.items()
        if (
            is_epoch_end and unit.should_stop(epoch_idx + 1)
            if isinstance(unit, Epoch)
            else unit.should_stop(batch_idx + 1)
        )
    }
    return [name for name in _ORDER if name in reached]


@given(units=_plans, epoch_length=st.integers(1, 9), start=st.integers(0, 30))
def test_looking_only_when_told_misses_nothing(
    units: dict[_TrainBoundaryType, TrainUnit], epoch_length: int, start: int
) -> None:
    schedule = Schedule(units, epoch_length, every_batch=False)
    check_at = schedule.next_check(start)
    for batch_idx in range(start, start + 40):
        expected = _asked_after_every_batch(units, epoch_length, batch_idx)
        assert [kind.value for kind in schedule.due(batch_idx + 1)] == expected
        if batch_idx + 1 == check_at:
            check_at = schedule.next_check(batch_idx + 1)
        else:
            assert expected == []
            assert batch_idx + 1 < check_at


def test_test_mode_reaches_the_end_on_each_batch() -> None:
    units: dict[_TrainBoundaryType, TrainUnit] = {_TrainBoundaryType.TRAIN: Batch(100)}
    schedule = Schedule(units, 10, every_batch=True)
    assert schedule.next_check(0) == 1
    assert schedule.due(1) == [_TrainBoundaryType.TRAIN]


def test_periods_count_steps() -> None:
    assert [n for n in range(10) if Batch(3).should_stop(n)] == [3, 6, 9]
    assert all(Batch(value).should_stop(n) for value in (0, -1) for n in range(3))
    assert not Batch(sys.maxsize).should_stop(5)
    numpy_three: Any = np.int16(3)
    assert [n for n in range(10) if Epoch(numpy_three).should_stop(n)] == [3, 6, 9]


def test_containers_hold_absolute_counts() -> None:
    assert [n for n in range(50) if Batch([5, 30, 45]).should_stop(n)] == [5, 30, 45]
    assert [n for n in range(5) if Epoch(range(0, 5, 2)).should_stop(n)] == [0, 2, 4]


@pytest.mark.parametrize("value", [2.0, None, iter([1])])
def test_other_values_fail_when_asked(value: Any) -> None:
    unit = Batch(value)
    with pytest.raises(AssertionError, match="Batch"):
        unit.should_stop(1)


def test_units_are_values() -> None:
    assert Batch(3) == Batch(3)
    assert Batch(3) != Epoch(3)
    assert Batch([1, 2]) == Batch([1, 2])
    assert len({Batch(3), Batch(3), Epoch(3)}) == 2
    assert {Batch([1]): 1}[Batch([1])] == 1
    assert repr(Epoch([1, 2])) == "Epoch([1, 2])"


def test_lengths_convert_from_searcher_units() -> None:
    convert = TrainUnit._from_searcher_unit
    assert convert(5, Unit.EPOCHS) == Epoch(5)
    assert convert(5, Unit.BATCHES) == Batch(5)
    assert convert(65, Unit.RECORDS, 32) == Batch(2)
    assert convert(5, Unit.RECORDS, 32) == Batch(1)
    with pytest.raises(ValueError, match="global_batch_size"):
        convert(5, Unit.RECORDS)
    with pytest.raises(ValueError, match="unit"):
        convert(5, None)
    assert (Batch(1)._to_searcher_unit(), Epoch(1)._to_searcher_unit()) == (
        Unit.BATCHES,
        Unit.EPOCHS,
    )


def test_lengths_convert_from_exactly_one_value() -> None:
    assert TrainUnit._from_values(batches=4) == Batch(4)
    assert TrainUnit._from_values(epochs=4) == Epoch(4)
    assert TrainUnit._from_values(epochs=0) == Epoch(sys.maxsize)
    assert TrainUnit._from_values(records=64, global_batch_size=32) == Batch(2)
    with pytest.raises(ValueError, match="exactly one"):
        TrainUnit._from_values()
    with pytest.raises(ValueError, match="exactly one"):
        TrainUnit._from_values(batches=1, epochs=1)
    with pytest.raises(AssertionError, match="global batch size"):
        TrainUnit._from_values(records=64)


def test_private_types_keep_their_shape() -> None:
    assert not _ShouldExit().skip_exit_checkpoint
    assert _ShouldExit(True).skip_exit_checkpoint
    assert {kind.name: kind.value for kind in _TrainBoundaryType} == {n: n for n in _ORDER}
    boundary = _TrainBoundary(_TrainBoundaryType.TRAIN, Batch(1))
    assert (boundary.step_type, boundary.unit) == (_TrainBoundaryType.TRAIN, Batch(1))
    assert not boundary.limit_reached
    assert vars(_TrialState()) == {
        "trial_id": 0,
        "last_ckpt": 0,
        "step_id": 0,
        "last_val": 0,
        "batches_trained": 0,
        "epochs_trained": 0,
    }
