"""Show that accumulating gradients over four batches of 16 trains like one batch of 64.

python train.py
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch

LARGE_BATCH = 64


def digits(train: bool) -> TensorDataset:
    """Return images and labels: the first 1408, a multiple of the batch size, are for training."""
    data = load_digits()
    images = torch.tensor(data.data, dtype=torch.float32) / 16
    labels = torch.tensor(data.target)
    chosen = slice(None, 1408) if train else slice(1408, None)
    return TensorDataset(images[chosen], labels[chosen])


class LastMetrics(pytorch.PyTorchCallback):
    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.metrics = metrics  # of the whole validation set, on every rank


class ClippedTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.2, momentum=0.9)
        )
        self.updates = 0
        self.longest = 0.0

    def clip(self, params: list[torch.Tensor]) -> None:
        """Clip the gradients; called once per update, with their mean over all small batches."""
        length = nn.utils.clip_grad_norm_(params, max_norm=0.5)
        self.updates += 1
        self.longest = max(self.longest, float(length))

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
        self.context.step_optimizer(self.optimizer, clip_grads=self.clip)
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        return {"accuracy": (self.model(images).argmax(dim=1) == labels).float().mean()}


def train(batches_per_update: int, epochs: int) -> ClippedTrial:
    with pytorch.init(
        hparams={"global_batch_size": LARGE_BATCH // batches_per_update},
        aggregation_frequency=batches_per_update,
        seed=7,  # the same initial weights, and the same order of images
    ) as context:
        trial = ClippedTrial(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=pytorch.Epoch(epochs), checkpoint_policy="none")
    return trial


def main() -> None:
    parser = argparse.ArgumentParser(description="Aggregate and clip gradients.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batches-per-update", type=int, default=4)
    args = parser.parse_args()

    large, small = train(1, args.epochs), train(args.batches_per_update, args.epochs)
    for name, trial in (("large batches", large), ("small batches", small)):
        print(
            f"{name}: {trial.updates} updates, {trial.last.metrics['accuracy']:.1%} right, "
            f"longest gradient {trial.longest:.2f} cut to 0.5"
        )
    weights = zip(large.model.parameters(), small.model.parameters(), strict=True)
    difference = max(float((a - b).detach().abs().max()) for a, b in weights)
    print(f"The largest difference between their weights is {difference:.1e}.")


if __name__ == "__main__":
    main()
