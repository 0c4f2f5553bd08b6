"""Units of training length and what is due when. Pure: no clock, no files, no global state."""

from __future__ import annotations

import dataclasses
import enum
import numbers
import sys
from collections.abc import Container, Mapping
from typing import Any

from determined.core import Unit


class TrainUnit:
    """A length or a period of training, counted in batches or epochs.

    An integer is a period (`Batch(100)`: every 100 batches). Any other container is a schedule
    of counts since the start of the trial (`Batch([5, 30, 45])`: after batches 5, 30 and 45).
    """

    def __init__(self, value: int | Container[int]) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and bool(other.value == self.value)

    def __hash__(self) -> int:
        try:
            return hash((type(self), self.value))
        except TypeError:  # lists and sets as schedules
            return hash(type(self))

    def should_stop(self, step_num: int) -> bool:
        """Return whether the unit is reached after `step_num` finished batches or epochs."""
        value = self.value
        if isinstance(value, numbers.Integral):
            return value < 1 or (step_num != 0 and step_num % int(value) == 0)
        assert not isinstance(value, (str, bytes)), self._complaint()
        assert isinstance(value, Container), self._complaint()
        return step_num in value

    def _complaint(self) -> str:
        return (
            f"The value of {type(self).__name__} must be an integer or a container of "
            f"integers, got {self.value!r}."
        )

    @staticmethod
    def _from_searcher_unit(
        length: int, unit: Unit | None, global_batch_size: int | None = None
    ) -> TrainUnit:
        if unit == Unit.EPOCHS:
            return Epoch(length)
        if unit == Unit.BATCHES:
            return Batch(length)
        if unit == Unit.RECORDS:
            if global_batch_size is None:
                raise ValueError(
                    "A length in records needs the hyperparameter `global_batch_size`."
                )
            return Batch._from_records(length, global_batch_size)
        raise ValueError(f"The length's unit must be records, batches or epochs, got {unit!r}.")

    def _to_searcher_unit(self) -> Unit:
        return Unit.EPOCHS if isinstance(self, Epoch) else Unit.BATCHES

    @staticmethod
    def _from_values(
        batches: int | None = None,
        records: int | None = None,
        epochs: int | None = None,
        global_batch_size: int | None = None,
    ) -> TrainUnit:
        given = [value for value in (batches, records, epochs) if value is not None]
        if len(given) != 1:
            raise ValueError(
                f"Give exactly one of batches, records, epochs; got {batches=}, {records=}, "
                f"{epochs=}."
            )
        value = given[0] if given[0] >= 1 else sys.maxsize
        if records is not None:
            assert global_batch_size, "A length in records needs a global batch size."
            return Batch._from_records(value, global_batch_size)
        return Epoch(value) if epochs is not None else Batch(value)


class Batch(TrainUnit):
    """Counts batches per slot since the start of the trial."""

    @staticmethod
    def _from_records(records: int, global_batch_size: int) -> Batch:
        return Batch(max(records // global_batch_size, 1))


class Epoch(TrainUnit):
    """Counts finished epochs since the start of the trial."""


class _ShouldExit(Exception):
    """Leave the training loop now, by default with a checkpoint."""

    def __init__(self, skip_exit_checkpoint: bool = False) -> None:
        super().__init__(skip_exit_checkpoint)
        self.skip_exit_checkpoint = skip_exit_checkpoint


class _TrainBoundaryType(enum.Enum):
    CHECKPOINT = "CHECKPOINT"
    REPORT = "REPORT"
    VALIDATE = "VALIDATE"
    TRAIN = "TRAIN"


class _TrainBoundary:
    """A unit and what to do when it is reached."""

    def __init__(self, step_type: _TrainBoundaryType, unit: TrainUnit) -> None:
        self.step_type = step_type
        self.unit = unit
        self.limit_reached = False


@dataclasses.dataclass
class _TrialState:
    """The counters of a trial, as stored in `trial_state.pkl`."""

    trial_id: int = 0
    last_ckpt: int = 0
    step_id: int = 0
    last_val: int = 0
    batches_trained: int = 0
    epochs_trained: int = 0


# The order in which boundaries of one batch are handled: a validation may save, so that the
# checkpoint boundary behind it finds nothing left to do.
_ORDER = (
    _TrainBoundaryType.TRAIN,
    _TrainBoundaryType.VALIDATE,
    _TrainBoundaryType.CHECKPOINT,
    _TrainBoundaryType.REPORT,
)


_AT_PAUSE = (_TrainBoundaryType.VALIDATE, _TrainBoundaryType.CHECKPOINT)


class Schedule:
    """Knows which boundaries a batch reaches, and when to look next."""

    def __init__(
        self,
        units: Mapping[_TrainBoundaryType, TrainUnit],
        epoch_length: int,
        every_batch: bool,
        pauses_at: int | None = None,
    ) -> None:
        """Hold the units; with `every_batch` (test mode) the TRAIN boundary falls on each batch.

        At the batch `pauses_at`, a validation and a checkpoint are due whatever the units say.
        """
        self._units = [(kind, units[kind]) for kind in _ORDER if kind in units]
        self._epoch_length = epoch_length
        self._every_batch = every_batch
        self._pauses_at = pauses_at

    def due(self, batches_trained: int) -> list[_TrainBoundaryType]:
        """Return what the last trained batch reached, in the order in which to handle it."""
        epochs, into_epoch = divmod(batches_trained, self._epoch_length)
        reached: list[_TrainBoundaryType] = []
        for kind, unit in self._units:
            if self._every_batch and kind is _TrainBoundaryType.TRAIN:
                reached.append(kind)
            elif isinstance(unit, Epoch):
                if into_epoch == 0 and unit.should_stop(epochs):
                    reached.append(kind)
            elif unit.should_stop(batches_trained):
                reached.append(kind)
        if batches_trained == self._pauses_at:
            reached = [kind for kind in _ORDER if kind in reached or kind in _AT_PAUSE]
        return reached

    def next_check(self, batches_trained: int) -> int:
        """Return the smallest later count at which `due` may answer with anything."""
        if self._every_batch:
            return batches_trained + 1
        found = min(self._next(unit, batches_trained) for _, unit in self._units)
        if self._pauses_at is not None and batches_trained < self._pauses_at:
            return min(found, self._pauses_at)
        return found

    def _next(self, unit: TrainUnit, batches_trained: int) -> int:
        value = unit.value
        if isinstance(unit, Epoch):
            epochs = batches_trained // self._epoch_length
            step = max(int(value), 1) if isinstance(value, numbers.Integral) else 1
            return (epochs // step + 1) * step * self._epoch_length
        if isinstance(value, numbers.Integral) and int(value) >= 1:
            return (batches_trained // int(value) + 1) * int(value)
        return batches_trained + 1  # a container may change while we train: ask it each time


def counted(number: int, word: str) -> str:
    """Return "1 batch", "3 batches", "2 epochs"."""
    if number == 1:
        return f"1 {word}"
    return f"{number} {word}{'es' if word.endswith('ch') and word != 'epoch' else 's'}"


def is_whole_number(value: Any) -> bool:
    """Accept Python and numpy integers, not booleans."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
