"""Learning rates in TensorBoard."""

from __future__ import annotations

from typing import Any

from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context import PyTorchTrialContext
from determined.pytorch.callbacks._scalars import ChiefScalars, optimizer_names


class LearningRateMonitor(PyTorchCallback):
    """Writes the learning rates to TensorBoard with every training report.

    The tag is `lr/<optimizer>/<group>`: the class of the optimizer (with its index if there are
    several) and the group's `name` if it has one, else its index. The value is the rate that the
    next batch will use. It is also added to the report's `avg_metrics`, so that trackers which come
    later in `build_callbacks` record it.
    """

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self._scalars = ChiefScalars(context, ".lr")

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        """Write one point for each parameter group."""
        if self._context.distributed.rank != 0:
            return
        batches_trained = self._context.current_train_batch() + 1
        for tag, rate in self._rates().items():
            self._scalars.add(tag, [rate], [batches_trained])
            avg_metrics[tag] = rate

    def on_trial_shutdown(self) -> None:
        """Write what is left."""
        self._scalars.close()

    def _rates(self) -> dict[str, float]:
        names = optimizer_names(self._context)
        return {
            f"lr/{name}/{group.get('name', index)}": float(group["lr"])
            for name, optimizer in zip(names, self._context.optimizers, strict=True)
            for index, group in enumerate(optimizer.param_groups)
            if "lr" in group
        }
