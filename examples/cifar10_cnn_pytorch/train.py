"""Train a convolutional net on CIFAR-10, with flipped images and a one-cycle learning rate.

python train.py path/to/cifar-10-batches-py
det experiment create adaptive.yaml .
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from cifar10 import read_cifar10, read_names
from torch import nn

import determined as det
from determined import pytorch


class Normalize(nn.Module):
    """Scale bytes to about -2 to 2, on the device: until then the data stay small."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([125.3, 123.0, 113.9]).reshape(3, 1, 1))
        self.register_buffer("deviation", torch.tensor([63.0, 62.1, 66.7]).reshape(3, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return (images - self.mean) / self.deviation


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class CIFARTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.folder = Path(context.get_hparam("data"))
        model = nn.Sequential(
            Normalize(),
            block(3, 32),
            block(32, 64),
            block(64, 128),
            nn.Flatten(),
            nn.Linear(128 * 4 * 4, 10),
        )
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer,
            max_lr=context.get_hparam("learning_rate"),
            total_steps=context.get_hparam("batches"),
        )
        self.schedule = context.wrap_lr_scheduler(
            schedule, step_mode=pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH
        )

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(
            read_cifar10(self.folder, train=True),
            batch_size=self.context.get_per_slot_batch_size(),
            shuffle=True,
            drop_last=True,
        )

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(read_cifar10(self.folder, train=False), batch_size=500)

    def train_batch(
        self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int
    ) -> dict[str, torch.Tensor]:
        images, labels = batch
        flips = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
        scores = self.model(torch.where(flips, images.flip(3), images))
        loss = nn.functional.cross_entropy(scores, labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss, "accuracy": (scores.argmax(dim=1) == labels).float().mean()}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        scores = self.model(images)
        return {
            "validation_loss": nn.functional.cross_entropy(scores, labels),
            "validation_accuracy": (scores.argmax(dim=1) == labels).float().mean(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a convolutional net on CIFAR-10.")
    parser.add_argument("data", type=Path, help="the unpacked folder cifar-10-batches-py")
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()

    hparams = {
        "data": str(args.data.resolve()),
        "batches": args.batches,
        "global_batch_size": args.batch_size,
        "learning_rate": 0.1,
    }
    info = det.get_cluster_info()
    if info is not None:  # on the platform, the experiment sets the hyperparameters
        hparams |= info.trial.hparams
    with pytorch.init(hparams=hparams, seed=7) as context:
        trainer = pytorch.Trainer(CIFARTrial(context), context)
        trainer.fit(
            max_length=pytorch.Batch(args.batches),
            validation_period=pytorch.Batch(200),
            metric="validation_accuracy",
            smaller_is_better=False,
        )

    if context.distributed.rank == 0:
        trial = pytorch.load_trial_from_checkpoint_path(trainer.latest_checkpoint, CIFARTrial)
        images, labels = read_cifar10(args.data, train=False)[:]
        with torch.no_grad():
            guesses = torch.cat([trial.model.eval()(i).argmax(dim=1) for i in images.split(500)])
        is_right = (guesses == labels).float()
        print(f"{is_right.mean():.1%} of {len(labels)} test images are right:")
        for index, name in enumerate(read_names(args.data)):
            print(f"  {name:12} {is_right[labels == index].mean():.1%}")


if __name__ == "__main__":
    main()
