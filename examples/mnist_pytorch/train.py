"""Train a small convolutional net, one `nn.Sequential`, on MNIST.

python train.py path/to/mnist
det experiment create adaptive.yaml .
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from mnist import read_mnist
from torch import nn

import determined as det
from determined import pytorch


class MNistTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.folder = Path(context.get_hparam("data"))
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(context.get_hparam("dropout")),
            nn.Linear(32 * 7 * 7, 10),
        )
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.model.parameters(), lr=context.get_hparam("learning_rate"))
        )

    def build_training_data_loader(self) -> pytorch.DataLoader:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(
            read_mnist(self.folder, train=True), batch_size=batch_size, shuffle=True
        )

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(read_mnist(self.folder, train=False), batch_size=500)

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
        scores = self.model(images)
        return {
            "validation_loss": nn.functional.cross_entropy(scores, labels),
            "accuracy": (scores.argmax(dim=1) == labels).float().mean(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small net on MNIST.")
    parser.add_argument("data", type=Path, help="folder with the four MNIST files")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    hparams = {
        "data": str(args.data.resolve()),
        "global_batch_size": 64,
        "learning_rate": 2e-3,
        "dropout": 0.25,
    }
    info = det.get_cluster_info()
    if info is not None:  # on the platform, the experiment sets the hyperparameters
        hparams |= info.trial.hparams
    with pytorch.init(hparams=hparams, seed=7) as context:
        trainer = pytorch.Trainer(MNistTrial(context), context)
        trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(1),
            metric="accuracy",
            smaller_is_better=False,
        )

    if context.distributed.rank == 0:
        trial = pytorch.load_trial_from_checkpoint_path(trainer.latest_checkpoint, MNistTrial)
        images, labels = read_mnist(args.data, train=False)[:]
        with torch.no_grad():
            guesses = trial.model.eval()(images).argmax(dim=1)
        accuracy = (guesses == labels).float().mean()
        print(f"{accuracy:.1%} of {len(labels)} test images are right.")
        for index in (guesses != labels).nonzero().flatten().tolist()[:3]:
            print(f"  image {index} is a {labels[index]}, taken for a {guesses[index]}")


if __name__ == "__main__":
    main()
