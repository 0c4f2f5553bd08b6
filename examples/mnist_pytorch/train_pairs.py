"""Train one model with two inputs and three outputs: both digits, and which one is larger.

python train_pairs.py path/to/mnist
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from mnist import read_mnist
from torch import nn
from torch.utils.data import Dataset

from determined import pytorch

Batch = dict[str, torch.Tensor]


class Pairs(Dataset):
    """Pairs each image with another; the collated batch is a dictionary of tensors."""

    def __init__(self, folder: Path, train: bool) -> None:
        self.images, self.labels = read_mnist(folder, train)[:]
        self.partners = torch.randperm(
            len(self.labels), generator=torch.Generator().manual_seed(int(train))
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Batch:
        left, right = index, self.partners[index]
        return {
            "left_image": self.images[left],
            "right_image": self.images[right],
            "left": self.labels[left],
            "right": self.labels[right],
            "larger": (self.labels[left] > self.labels[right]).long(),
        }


class PairModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.eye = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 64),
            nn.ReLU(),
        )
        self.digit = nn.Linear(64, 10)
        self.larger = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, left_image: torch.Tensor, right_image: torch.Tensor) -> Batch:
        left, right = self.eye(left_image), self.eye(right_image)
        return {
            "left": self.digit(left),
            "right": self.digit(right),
            "larger": self.larger(torch.cat([left, right], dim=1)),
        }


class PairTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.folder = Path(context.get_hparam("data"))
        self.model = context.wrap_model(PairModel())
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=2e-3))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(
            Pairs(self.folder, train=True), batch_size=batch_size, shuffle=True
        )

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(Pairs(self.folder, train=False), batch_size=500)

    def train_batch(self, batch: Batch, epoch_idx: int, batch_idx: int) -> Batch:
        outputs = self.model(batch["left_image"], batch["right_image"])
        losses = {
            f"{name}_loss": nn.functional.cross_entropy(scores, batch[name])
            for name, scores in outputs.items()
        }
        loss = sum(losses.values())
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss, **losses}

    def evaluate_batch(self, batch: Batch, batch_idx: int) -> Batch:
        outputs = self.model(batch["left_image"], batch["right_image"])
        is_right = {name: scores.argmax(dim=1) == batch[name] for name, scores in outputs.items()}
        is_right["all_three"] = torch.stack(list(is_right.values())).all(dim=0)
        return {f"{name}_accuracy": right.float().mean() for name, right in is_right.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a model of two inputs on MNIST.")
    parser.add_argument("data", type=Path, help="folder with the four MNIST files")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()

    hparams = {"data": str(args.data.resolve()), "global_batch_size": 64}
    with pytorch.init(hparams=hparams, seed=7) as context:
        trainer = pytorch.Trainer(PairTrial(context), context)
        trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(1),
            metric="all_three_accuracy",
            smaller_is_better=False,
        )

    if context.distributed.rank == 0:
        trial = pytorch.load_trial_from_checkpoint_path(trainer.latest_checkpoint, PairTrial)
        trial.model.eval()
        loader = pytorch.DataLoader(Pairs(args.data, train=False), batch_size=500)
        with torch.no_grad():
            totals = [(len(b["left"]), trial.evaluate_batch(b, i)) for i, b in enumerate(loader)]
        count = sum(n for n, _ in totals)
        print(f"Of {count} pairs of test images:")
        for name in totals[0][1]:
            accuracy = sum(n * float(metrics[name]) for n, metrics in totals) / count
            print(f"  {name:20} {accuracy:.1%}")


if __name__ == "__main__":
    main()
