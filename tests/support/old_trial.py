"""Trials as users of old releases wrote them; copied into old checkpoints as `model_def.py`."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch


class OldTrial(pytorch.PyTorchTrial):
    """One model, one optimizer; draws random numbers before each batch and remembers them."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.width = context.get_hparam("width") if context._hparams else 3
        self.model = context.wrap_model(nn.Linear(self.width, 2))
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        )
        self.draws: list[tuple[float, float, float]] = []
        self.batch_idxs: list[int] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.draws.append((torch.rand(()).item(), float(np.random.rand()), random.random()))
        self.batch_idxs.append(batch_idx)
        loss = self.model(batch[0]).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"loss": self.model(batch[0]).square().mean()}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(TensorDataset(torch.ones(8, self.width)), batch_size=2)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(TensorDataset(torch.ones(2, self.width)), batch_size=2)


class OldApiTrial(OldTrial):
    """As before models were wrapped: the trainer asked for the model and passed it around."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context

    def build_model(self) -> nn.Module:
        return nn.Linear(self.context.get_hparam("width"), 2)
