"""A small trial for the fragments in the guides, and what they have in hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

from determined import pytorch


class Line(pytorch.PyTorchTrial):
    """Fits a line to 32 points, in batches of 8."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        x = torch.linspace(0, 1, 32).unsqueeze(1)
        return pytorch.DataLoader(TensorDataset(x, 2 * x), batch_size=8, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return self.build_training_data_loader()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        return {"error": torch.nn.functional.mse_loss(self.model(x), y)}


def train(trial_class: type[pytorch.PyTorchTrial] = Line, **options: Any) -> pytorch.Trainer:
    """Train for two epochs into `checkpoints`; options go to `fit`."""
    with pytorch.init(seed=1, checkpoint_storage=Path("checkpoints").absolute()) as context:
        trainer = pytorch.Trainer(trial_class(context), context)
        trainer.fit(**{"max_length": pytorch.Epoch(2), **options})
    return trainer
