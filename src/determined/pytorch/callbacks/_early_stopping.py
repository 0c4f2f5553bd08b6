"""Stop a run whose validation metric no longer improves."""

from __future__ import annotations

import logging
import math
from typing import Any

from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._schedule import _ShouldExit, counted, is_whole_number
from determined.util import is_numerical_scalar

logger = logging.getLogger("determined.pytorch")


class EarlyStopping(PyTorchCallback):
    """Stops training after `patience` validations in a row without a better `metric`.

    A run that was stopped this way and is resumed ends at once, unless it is given more patience.

    Args:
        context: The trial's context.
        metric: Name of a validation metric.
        patience: Validations without a better value after which to stop.
        smaller_is_better: Whether smaller values are better.
        min_delta: How much better a value must be to count. NaN never counts.

    Attributes:
        best: The best value so far, None before the first.
        validations_without_better: How many validations have passed since.
    """

    def __init__(
        self,
        context: PyTorchTrialContext,
        metric: str,
        patience: int = 3,
        *,
        smaller_is_better: bool = True,
        min_delta: float = 0.0,
    ) -> None:
        if not is_whole_number(patience) or patience < 1:
            raise ValueError(f"`patience` must be an integer of at least 1, got {patience!r}.")
        if not min_delta >= 0:
            raise ValueError(f"`min_delta` must not be negative, got {min_delta!r}.")
        self._context = context
        self._metric = metric
        self._patience = patience
        self._smaller_is_better = smaller_is_better
        self._min_delta = min_delta
        self._first_batch_idx = 0
        self.best: float | None = None
        self.validations_without_better = 0

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Note whether the run continues one."""
        self._first_batch_idx = first_batch_idx

    def on_training_batch_start(self, epoch_idx: int, batch_idx: int, batch: Any) -> None:
        """End a resumed run that had been stopped: the checkpoint it came from is its last."""
        if batch_idx == self._first_batch_idx > 0 and self._is_out_of_patience():
            if self._context.distributed.rank == 0:
                logger.info(
                    f"EarlyStopping ended this run before: {self._reason()}. To continue, give "
                    f"EarlyStopping more patience than {self.validations_without_better}, or "
                    "remove it."
                )
            raise _ShouldExit

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        """Compare the metric with the best so far."""
        value = metrics.get(self._metric)
        if not is_numerical_scalar(value):
            raise ValueError(
                f"EarlyStopping watches the validation metric {self._metric!r}, which must be one "
                f"number, got {value!r}. The metrics are {sorted(metrics)}."
            )
        if self._is_better(float(value)):  # type: ignore[arg-type]  # checked above
            self.best = float(value)  # type: ignore[arg-type]  # checked above
            self.validations_without_better = 0
            return
        self.validations_without_better += 1
        if self._is_out_of_patience():
            self._context.set_stop_requested(True)
            if self._context.distributed.rank == 0:
                logger.info(
                    f"Stopping early: {self._reason()} (patience={self._patience}). A resumed "
                    "run ends at once unless EarlyStopping has more patience."
                )

    def state_dict(self) -> dict[str, Any]:
        """Return the best value and how long ago it was."""
        return {
            "best": self.best,
            "validations_without_better": self.validations_without_better,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue to wait, unless the run only borrows the weights of another."""
        if self._first_batch_idx > 0:
            self.best = state_dict["best"]
            self.validations_without_better = state_dict["validations_without_better"]

    def _is_better(self, value: float) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = self.best - value if self._smaller_is_better else value - self.best
        return gain > self._min_delta

    def _reason(self) -> str:
        validations = counted(self.validations_without_better, "validation")
        if self.best is None:
            return f"{self._metric} was not a number in {validations}"
        return f"{self._metric} was not better than {self.best:.6g} in {validations}"

    def _is_out_of_patience(self) -> bool:
        return self.validations_without_better >= self._patience
