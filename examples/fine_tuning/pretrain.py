"""Train a net to classify the ten digits; fine_tune.py then reuses its body.

python pretrain.py
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch


def digits(train: bool) -> TensorDataset:
    """Return 8x8 images of digits and their labels: every third one is kept for validation."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    held_out = torch.arange(len(labels)) % 3 == 0
    chosen = ~held_out if train else held_out
    return TensorDataset(images[chosen], labels[chosen])


def build_body() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 64),
        nn.ReLU(),
    )


class LastMetrics(pytorch.PyTorchCallback):
    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.metrics = metrics  # of the whole validation set, on every rank


class PretrainTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Sequential(build_body(), nn.Linear(64, 10)))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=1e-3))

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        self.last = LastMetrics()
        return {"last_metrics": self.last}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(digits(train=True), batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits(train=False), batch_size=100)

    def train_batch(
        self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int
    ) -> dict[str, torch.Tensor]:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        return {"accuracy": (self.model(images).argmax(dim=1) == labels).float().mean()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn ten digits.")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    with pytorch.init(hparams={"global_batch_size": 32}, seed=7) as context:
        trial = PretrainTrial(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=pytorch.Epoch(args.epochs), checkpoint_policy="none")
    if context.distributed.rank == 0:
        print(f"{trial.last.metrics['accuracy']:.1%} of unseen digits are right.")
        print(f"Next: python fine_tune.py {trainer.latest_checkpoint}")


if __name__ == "__main__":
    main()
