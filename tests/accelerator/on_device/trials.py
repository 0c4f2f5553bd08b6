"""A trial that uses a device in all ways that matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.pytorch import DataLoader, PyTorchTrialContext


class Classifier(pytorch.PyTorchTrial):
    """Draws random numbers on the device in each batch, and reports three metrics from there."""

    dtype: torch.dtype | None = None  # of amp
    clips = False

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        if self.dtype is not None:
            context.experimental.use_amp(self.dtype)
        self.computed_in: set[torch.dtype] = set()
        layers = [nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3)]
        layers[0].register_forward_hook(lambda *call: self.computed_in.add(call[2].dtype))
        self.model = context.wrap_model(nn.Sequential(*layers))
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.optimizer = context.wrap_optimizer(optimizer)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        mode = pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH
        self.scheduler = context.wrap_lr_scheduler(scheduler, mode)

    def _data(self) -> TensorDataset:
        generator = torch.Generator().manual_seed(5)
        return TensorDataset(
            torch.randn(48, 4, generator=generator), torch.randint(3, (48,), generator=generator)
        )

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(self._data(), batch_size=4, shuffle=True, pin_memory=True)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(self._data(), batch_size=12, pin_memory=True)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        images, labels = batch
        output = self.model(images)
        loss = nn.functional.cross_entropy(output.float(), labels)
        self.context.backward(loss)
        self.context.step_optimizer(
            self.optimizer, clip_grads=_clip_gradients if self.clips else None
        )
        hits = output.argmax(1) == labels
        return {"loss": loss, "hits": hits.sum(), "accuracy": hits.double().mean()}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        images, labels = batch
        output = self.model(images)
        loss = nn.functional.cross_entropy(output.float(), labels)
        return {"loss": loss, "accuracy": (output.argmax(1) == labels).double().mean()}


def _clip_gradients(parameters: Iterator[torch.Tensor]) -> None:
    nn.utils.clip_grad_norm_(list(parameters), 1.0)
