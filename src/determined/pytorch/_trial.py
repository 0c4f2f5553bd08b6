"""The trial class that users implement."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data

from determined._legacy.trial_context import LegacyTrial
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._data.batches import DataLoader, TorchData, data_length
from determined.pytorch._metrics.reducer import Reducer

if TYPE_CHECKING:
    from determined.pytorch._context.context import PyTorchTrialContext


class PyTorchTrial(LegacyTrial):
    """What to train, and how to train one batch; subclass it and pass an instance to `Trainer`.

    In `__init__`, create models, optimizers and schedulers, in this order, and pass each through
    `context.wrap_model`, `context.wrap_optimizer`, `context.wrap_lr_scheduler`: what is wrapped is
    moved to the device, checkpointed and distributed. There may be any number of each.
    """

    trial_controller_class: Any = None  # set by the package to its loop
    trial_context_class: Any = None

    @abc.abstractmethod
    def __init__(self, context: PyTorchTrialContext) -> None:
        """Build the models and optimizers; subclasses need not call this one."""

    @abc.abstractmethod
    def train_batch(
        self, batch: TorchData, epoch_idx: int, batch_idx: int
    ) -> torch.Tensor | dict[str, Any]:
        """Train on one batch and return its metrics, or just the loss.

        Call `context.backward(loss)` and `context.step_optimizer(optimizer)`, in any number and
        order. Metric names must be the same for all batches. Tensors may be returned as they are:
        they are copied to the CPU once per report, not per batch.

        Args:
            batch: A batch of the training loader, on the device.
            epoch_idx: Epochs finished since the start of the trial.
            batch_idx: Batches this rank has finished since the start of the trial; never reset.
        """

    @abc.abstractmethod
    def build_training_data_loader(self) -> DataLoader | torch.utils.data.DataLoader[Any]:
        """Return the training data loader, normally a `determined.pytorch.DataLoader`.

        `batch_size` is per slot: `context.get_per_slot_batch_size()`.
        """

    def build_validation_data_loader(
        self,
    ) -> DataLoader | torch.utils.data.DataLoader[Any] | Mapping[str, Any] | None:
        """Return the validation data loader, normally a `determined.pytorch.DataLoader`.

        Or several by name: each is validated in turn, and the metrics of `{"wiki": ..., "code":
        ...}` are `wiki/loss` and `code/loss`. Without it, or if it returns None, there is no
        validation.
        """
        return None

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        """Return callbacks by name. Called once per `fit`."""
        return {}

    def evaluate_batch(self, batch: TorchData, batch_idx: int) -> dict[str, Any]:
        """Return the validation metrics of one batch; they are reduced by `evaluation_reducer`.

        Override this or `evaluate_full_dataset`, not both. This one is sharded over ranks.
        `batch_idx` counts from 0 within the validation and may be left out of the signature. With a
        parameter `set_name` it gets the name of the validation set, None if there is only one.
        """
        return None  # type: ignore[return-value]  # the base is never called

    def evaluate_full_dataset(
        self, data_loader: torch.utils.data.DataLoader[Any]
    ) -> dict[str, Any]:
        """Return the metrics of the whole validation set. Runs on the chief only.

        Batches are not moved to the device; use `context.to_device`.
        """
        return None  # type: ignore[return-value]  # the base is never called

    def evaluation_reducer(self) -> Reducer | dict[str, Reducer]:
        """Return the reducer of `evaluate_batch` metrics: one for all, or one per metric name."""
        return Reducer.AVG

    def get_batch_length(self, batch: Any) -> int:
        """Return the number of records in a batch; override it for batches of your own type."""
        return data_length(batch)
