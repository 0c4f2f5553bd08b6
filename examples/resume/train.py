"""Stop a run in the middle of an epoch, resume it, and compare it with an uninterrupted run.

python train.py
"""

from __future__ import annotations

import argparse
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch


def digits(train: bool) -> TensorDataset:
    """Return 8x8 images of digits and their labels: every fifth one is kept for validation."""
    data = load_digits()
    images = torch.tensor(data.data, dtype=torch.float32) / 16
    labels = torch.tensor(data.target)
    held_out = torch.arange(len(labels)) % 5 == 0
    chosen = ~held_out if train else held_out
    return TensorDataset(images[chosen], labels[chosen])


class StopAt(pytorch.PyTorchCallback):
    """Requests a stop after a given batch, as your own early-stopping rule might do."""

    def __init__(self, context: pytorch.PyTorchTrialContext, batch_idx: int) -> None:
        self.context, self.batch_idx = context, batch_idx

    def on_training_batch_end(self, epoch_idx: int, batch_idx: int, metrics: dict) -> None:
        if batch_idx + 1 == self.batch_idx:
            self.context.set_stop_requested(True)


class NoisyTrial(pytorch.PyTorchTrial):
    """Uses random numbers everywhere: initial weights, order, noise on the images, dropout."""

    def __init__(self, context: pytorch.PyTorchTrialContext, stop_at: int | None = None) -> None:
        self.context = context
        self.stop_at = stop_at
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=2e-3))
        decay = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.999)
        context.wrap_lr_scheduler(decay, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {} if self.stop_at is None else {"stop": StopAt(self.context, self.stop_at)}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(digits(train=True), batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits(train=False), batch_size=128)

    def train_batch(
        self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int
    ) -> dict[str, torch.Tensor]:
        images, labels = batch
        scores = self.model(images + 0.1 * torch.randn_like(images))
        loss = nn.functional.cross_entropy(scores, labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        return {"accuracy": (self.model(images).argmax(dim=1) == labels).float().mean()}


def train(
    batches: int, stop_at: int | None = None, latest_checkpoint: str | None = None
) -> pytorch.Trainer:
    with pytorch.init(hparams={"global_batch_size": 32}, seed=7) as context:
        trainer = pytorch.Trainer(NoisyTrial(context, stop_at), context)
        trainer.fit(
            max_length=pytorch.Batch(batches),
            validation_period=pytorch.Batch(50),
            metric="accuracy",
            smaller_is_better=False,
            latest_checkpoint=latest_checkpoint,
        )
    return trainer


def weights(trainer: pytorch.Trainer) -> dict[str, torch.Tensor]:
    trial = pytorch.load_trial_from_checkpoint_path(trainer.latest_checkpoint, NoisyTrial)
    return trial.model.state_dict()


def main() -> None:
    parser = argparse.ArgumentParser(description="Stop, continue, compare.")
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--stop-at", type=int, default=117)
    args = parser.parse_args()

    unbroken = train(args.batches)
    stopped = train(args.batches, stop_at=args.stop_at)
    continued = train(args.batches, latest_checkpoint=stopped.latest_checkpoint)

    whole, half, resumed = weights(unbroken), weights(stopped), weights(continued)
    changed = sum(not torch.equal(half[name], whole[name]) for name in whole)
    differing = [name for name in whole if not torch.equal(resumed[name], whole[name])]
    print(f"When it stopped, {changed} of {len(whole)} tensors still differed from the end.")
    print(f"After it continued, {len(differing)} differ from those of the unbroken run.")
    if differing:
        sys.exit(f"Not equal: {', '.join(differing)}")


if __name__ == "__main__":
    main()
