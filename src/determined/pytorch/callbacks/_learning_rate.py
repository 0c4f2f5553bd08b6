"""Learning rates for trackers."""

from __future__ import annotations

from typing import Any

from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._context.learning_rates import learning_rates
from determined.pytorch.callbacks._scalars import ChiefScalars


class LearningRateMonitor(PyTorchCallback):
    """Adds the learning rates to every training report, also for trackers that come later.

    The name is `lr/<optimizer>/<group>`: the class of the optimizer (with its index if there are
    several) and the group's `name` if it has one, else its index. The value is the rate that the
    next batch will use. TensorBoard has these curves without the callback; it writes them only
    where automatic logging is off.
    """

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self._scalars = ChiefScalars(context, ".lr")

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        """Add the rate of each parameter group."""
        if self._context.distributed.rank != 0:
            return
        batches_trained = self._context.current_train_batch() + 1
        for tag, rate in learning_rates(self._context).items():
            avg_metrics[tag] = rate
            if not self._context.get_enable_tensorboard_logging():
                self._scalars.add(tag, [rate], [batches_trained])

    def on_trial_shutdown(self) -> None:
        """Write what is left."""
        self._scalars.close()
