"""The position of a run while user code executes, so that an error can be recovered from.

Random states are noted before each batch only of those generators that batches were seen to move:
reading all of them would cost more than a small batch.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any

import torch

from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._context.lr_scheduler import LRScheduler
from determined.pytorch._data.seed import RNG_STATES, rng_state
from determined.pytorch._ranks.ddp import inner_module


class Stage(enum.Enum):
    """What the loop has given the floor to."""

    BETWEEN = "between batches"  # the last batch is finished
    FETCHING = "before train_batch"
    TRAINING = "in train_batch"
    VALIDATING = "in the validation"


class Moment:
    """Notes, cheaply, what it takes to go back to the end of the last finished batch."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.stage = Stage.BETWEEN
        self._context = context
        self._is_alone = context.distributed.size == 1  # else nothing is saved after an error
        self._drawn: list[tuple[str, Callable[[], Any]]] = []
        self._before_batch: list[Any] = []
        self._to_learn = 2  # the first batch begins where the segment did, so the second one tells
        self._start = rng_state()
        self._buffers = self._buffer_versions()
        self._manual_steps = self._count_manual_steps()
        self._weights = self._at_opening = self._weight_versions()

    def begin_segment(self) -> None:
        """Note all that a segment starts from."""
        if self._is_alone:
            self._start = self._learn()
            self._buffers = self._buffer_versions()
            self._manual_steps = self._count_manual_steps()

    def begin_batch(self) -> None:
        """Note what a batch that is never finished has to be taken back to."""
        self.stage = Stage.FETCHING
        if self._to_learn and self._is_alone:
            self._to_learn -= 1
            self._learn()
        if self._drawn:
            self._before_batch = [read() for _, read in self._drawn]

    def begin_validation(self) -> dict[str, Any]:
        """Note the random states that a validation starts from, and return them."""
        self._start = rng_state()
        self._weights = self._weight_versions()
        self.stage = Stage.VALIDATING
        return self._start

    def random_states(self) -> tuple[dict[str, Any], list[str]]:
        """Return those of the last finished batch, and the names of those that are unknown."""
        now = rng_state()
        if self.stage is Stage.BETWEEN:
            return now, []
        if self.stage is Stage.VALIDATING:
            return self._start, []
        known = dict(zip((name for name, _ in self._drawn), self._before_batch, strict=True))
        lost = [n for n in now if n not in known and not _equal(now[n], self._start.get(n))]
        return now | known, lost

    def have_buffers_moved(self) -> bool:
        """Say whether the models' buffers, such as running statistics, changed in this segment."""
        return self._buffer_versions() != self._buffers

    def have_weights_moved(self) -> bool:
        """Say whether weights changed since the validation began."""
        return self._weight_versions() != self._weights

    def have_schedulers_moved(self) -> bool:
        """Say whether the trial itself has stepped a scheduler in this segment."""
        return self._count_manual_steps() != self._manual_steps

    def has_moved(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Say whether any of these parameters of the models changed since the run was opened."""
        now = self._weight_versions()
        return any(id(p) in now and now[id(p)] != self._at_opening.get(id(p)) for p in parameters)

    def _learn(self) -> dict[str, Any]:
        """Find out which generators batches draw from: those that moved since the segment began.

        Returns the random states of now.
        """
        now = rng_state()
        moved = [name for name in now if not _equal(now[name], self._start.get(name))]
        known = {name for name, _ in self._drawn}
        self._drawn += [(name, RNG_STATES[name]) for name in moved if name not in known]
        return now

    def _buffer_versions(self) -> list[int]:
        models = map(inner_module, self._context.models)
        return [buffer._version for model in models for buffer in model.buffers()]

    def _weight_versions(self) -> dict[int, int]:
        models = map(inner_module, self._context.models)
        return {id(weight): weight._version for model in models for weight in model.parameters()}

    def _count_manual_steps(self) -> list[Any]:
        return [
            getattr(scheduler._scheduler, "last_epoch", None)
            for scheduler in self._context.lr_schedulers
            if scheduler._step_mode is LRScheduler.StepMode.MANUAL_STEP
        ]


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, tuple) and any(isinstance(part, torch.Tensor) for part in a):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)  # Python's own state, hundreds of numbers, is compared at once
