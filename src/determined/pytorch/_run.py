"""What the parts of a `fit` share: the participants, and the position of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping
from typing import Any

from determined.core.hangs.watchdog import Watchdog
from determined.pytorch._callback import Hooks, PyTorchCallback
from determined.pytorch._checkpoint.state.training_state import RunRecord
from determined.pytorch._checks.updates import Checks
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._data.samples import Samples
from determined.pytorch._data.training.training_data import TrainingData
from determined.pytorch._data.validation_parts import ValidationParts
from determined.pytorch._instrumentation.observer import Observer
from determined.pytorch._metrics.segment import Segment
from determined.pytorch._plan import FitPlan
from determined.pytorch._ranks.stopping import StopRequests
from determined.pytorch._schedule import Schedule, _TrainBoundaryType, _TrialState
from determined.pytorch._trial import PyTorchTrial


@dataclasses.dataclass(frozen=True)
class Fit:
    """One `fit` call: the trial, what was asked for, and who is told of it."""

    trial: PyTorchTrial
    context: PyTorchTrialContext
    plan: FitPlan
    observer: Observer
    callbacks: dict[str, PyTorchCallback]
    hooks: Hooks

    @classmethod
    def of(
        cls,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        plan: FitPlan,
        observer: Observer,
    ) -> Fit:
        """Have the trial build its callbacks."""
        callbacks = observer.callbacks(trial.build_callbacks())
        return cls(trial, context, plan, observer, callbacks, Hooks(callbacks, observer))

    def without(self, names: Container[str]) -> Fit:
        """Leave callbacks out."""
        kept = {name: c for name, c in self.callbacks.items() if name not in names}
        return dataclasses.replace(self, callbacks=kept, hooks=Hooks(kept, self.observer))


@dataclasses.dataclass(frozen=True)
class Run:
    """What a fit works on from start to end, and its progress; `open_run` creates it.

    `started_from` is the checkpoint that weights came from. `state` and `record` change while the
    run goes on: they are what a checkpoint keeps of it.
    """

    plan: FitPlan
    state: _TrialState
    record: RunRecord
    training_data: TrainingData
    validation_sets: Mapping[str | None, Any]  # loaders by name; None if there is only one
    validation_parts: ValidationParts
    validates: bool
    epoch_length: int
    started_from: str | None
    schedule: Schedule
    watchdog: Watchdog
    stop: StopRequests
    updates: Checks
    segment: Segment
    samples: Samples

    @property
    def due(self) -> list[_TrainBoundaryType]:
        """What the last trained batch brought due."""
        return self.schedule.due(self.state.batches_trained)

    @property
    def next_check(self) -> int:
        """The next count of batches at which anything may be due."""
        return min(self.schedule.next_check(self.state.batches_trained), self.updates.check_at)

    @property
    def is_finished(self) -> bool:
        """Whether training has come to its length."""
        return self.plan.is_finished(self.state)

    @property
    def is_validated(self) -> bool:
        """Whether the last trained batch was validated."""
        return self.state.last_val == self.state.batches_trained

    @property
    def is_saved(self) -> bool:
        """Whether a checkpoint of the last trained batch was saved, or is being written."""
        return self.state.last_ckpt == self.state.batches_trained

    @property
    def is_validation_due(self) -> bool:
        """Whether the schedule asks for a validation of the last trained batch."""
        return _TrainBoundaryType.VALIDATE in self.due

    @property
    def is_save_due(self) -> bool:
        """Whether a checkpoint of the last trained batch is wanted, however good it is."""
        return self.is_finished or _TrainBoundaryType.CHECKPOINT in self.due
