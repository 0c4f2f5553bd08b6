"""Train the same net in three ways: float32, automatic mixed precision, and manual scaling.

python train.py
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch


def digits(train: bool) -> TensorDataset:
    """Return 8x8 images of digits and their labels: every fifth one is kept for validation."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    held_out = torch.arange(len(labels)) % 5 == 0
    chosen = ~held_out if train else held_out
    return TensorDataset(images[chosen], labels[chosen])


class LastMetrics(pytorch.PyTorchCallback):
    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.metrics = metrics  # of the whole validation set, on every rank


class FullTrial(pytorch.PyTorchTrial):
    """Plain float32, and the base class of the other two."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        model = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 10),
        )
        model[0].register_forward_hook(self.look)
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=1e-3))
        self.loss = nn.CrossEntropyLoss()

    def look(self, layer: nn.Module, inputs: object, output: torch.Tensor) -> None:
        self.computed_in = output.dtype

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        self.last = LastMetrics()
        return {"last_metrics": self.last}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(digits(train=True), batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits(train=False), batch_size=120)

    def train_batch(
        self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int
    ) -> dict[str, torch.Tensor]:
        images, labels = batch
        loss = self.loss(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        return {"accuracy": (self.model(images).argmax(dim=1) == labels).float().mean()}


class AutomaticTrial(FullTrial):
    """One line turns on autocast, and loss scaling if the dtype needs it."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        context.experimental.use_amp(torch.bfloat16)
        super().__init__(context)


class ManualTrial(FullTrial):
    """Every step spelled out, for when you need control over each of them."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.scaler = context.wrap_scaler(torch.amp.GradScaler(context.device.type))
        super().__init__(context)

    def train_batch(
        self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int
    ) -> dict[str, torch.Tensor]:
        images, labels = batch
        with torch.autocast(self.context.device.type, dtype=torch.bfloat16):
            loss = self.loss(self.model(images), labels)
        self.context.backward(self.scaler.scale(loss))
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
        self.context.step_optimizer(self.optimizer, scaler=self.scaler)
        self.scaler.update()
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict[str, torch.Tensor]:
        with torch.autocast(self.context.device.type, dtype=torch.bfloat16):
            return super().evaluate_batch(batch, batch_idx)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mixed precision, automatic and by hand.")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()

    lines = []
    for trial_class in (FullTrial, AutomaticTrial, ManualTrial):
        with pytorch.init(hparams={"global_batch_size": 32}, seed=7) as context:
            trial = trial_class(context)
            start = time.monotonic()
            trainer = pytorch.Trainer(trial, context)
            trainer.fit(max_length=pytorch.Epoch(args.epochs), checkpoint_policy="none")
            seconds = time.monotonic() - start
        lines.append(
            f"{trial_class.__name__:15} computed in {trial.computed_in}, "
            f"{trial.last.metrics['accuracy']:.1%} right, {seconds:.1f} s"
        )
    if context.distributed.rank == 0:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
