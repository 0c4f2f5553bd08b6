"""When a learning-rate scheduler is stepped."""

from __future__ import annotations

import enum
from typing import Any


class LRScheduler:
    """A scheduler with the rule for stepping it; created by `context.wrap_lr_scheduler`."""

    class StepMode(enum.Enum):
        """When the trainer steps the scheduler; never inside an accumulation window."""

        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3
        STEP_EVERY_OPTIMIZER_STEP = 4

    def __init__(self, scheduler: Any, step_mode: StepMode, frequency: int = 1) -> None:
        if not isinstance(step_mode, LRScheduler.StepMode):
            names = ", ".join(mode.name for mode in LRScheduler.StepMode)
            raise TypeError(
                "`step_mode` must be a pytorch.LRScheduler.StepMode, such as "
                "pytorch.LRScheduler.StepMode.STEP_EVERY_EPOCH, got "
                f"{step_mode!r}. Choose one of {names}."
            )
        self._scheduler = scheduler
        self._step_mode = step_mode
        self._frequency = frequency

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Step the wrapped scheduler."""
        self._scheduler.step(*args, **kwargs)

    def get_last_lr(self) -> list[Any]:
        """Return the learning rates that the wrapped scheduler set last."""
        return self._scheduler.get_last_lr()  # type: ignore[no-any-return]  # any scheduler type

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped scheduler's state."""
        return self._scheduler.state_dict()  # type: ignore[no-any-return]  # any scheduler type

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the wrapped scheduler's state."""
        self._scheduler.load_state_dict(state_dict)

    def _steps_due(self, batch_idx: int, aggregation_frequency: int, epoch_length: int) -> int:
        """Count the steps to make after an update batch, for all batches of its window."""
        first = batch_idx + 1 - aggregation_frequency
        if self._step_mode is LRScheduler.StepMode.STEP_EVERY_BATCH:
            return _multiples(first, batch_idx + 1, self._frequency)
        if self._step_mode is LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP:
            update = (batch_idx + 1) // aggregation_frequency
            return _multiples(update - 1, update, self._frequency)
        if self._step_mode is LRScheduler.StepMode.STEP_EVERY_EPOCH:
            # An epoch that would end inside the next window counts now, at the update before it.
            next_batch_idx = batch_idx + aggregation_frequency
            return _multiples(
                batch_idx // epoch_length, next_batch_idx // epoch_length, self._frequency
            )
        return 0


def _multiples(low: int, high: int, frequency: int) -> int:
    """Count the multiples of `frequency` in (low, high]."""
    return high // frequency - low // frequency
