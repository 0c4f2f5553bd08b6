"""Train a small net on photographs of handwritten digits.

python train.py                        train, or continue if it was interrupted
det experiment create search.yaml .    search for better hyperparameters
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import determined as det
from determined import pytorch


def digits(train: bool) -> TensorDataset:
    """Return 8x8 images of digits and their labels: every fifth one is kept for validation."""
    with np.load(Path(__file__).with_name("digits.npz")) as data:
        images = torch.tensor(data["images"], dtype=torch.float32).unsqueeze(1) / 16
        labels = torch.tensor(data["labels"], dtype=torch.int64)
    held_out = torch.arange(len(labels)) % 5 == 0
    chosen = ~held_out if train else held_out
    return TensorDataset(images[chosen], labels[chosen])


class DigitsTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(context.get_hparam("dropout")),
            nn.Linear(16 * 4 * 4, 10),
        )
        self.model = context.wrap_model(net)
        self.optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.model.parameters(), lr=context.get_hparam("learning_rate"))
        )

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits(train=True), batch_size=32, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits(train=False), batch_size=360)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        noisy = images + 0.1 * torch.randn_like(images)
        loss = nn.functional.cross_entropy(self.model(noisy), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        images, labels = batch
        right = self.model(images).argmax(dim=1) == labels
        return {"accuracy": right.float().mean()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", help="of the run; another name is another run")
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()

    torch.set_num_threads(1)  # a net this small gains nothing from more
    hparams = {"learning_rate": 1e-3, "dropout": 0.5}
    info = det.get_cluster_info()
    if info is not None and info.trial is not None:  # a search chooses them
        hparams = info.trial.hparams
    with pytorch.init(hparams=hparams, seed=7, name=args.name) as context:
        trial = DigitsTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(1),
            checkpoint_period=pytorch.Epoch(1),
            metric="accuracy",
            smaller_is_better=False,
            latest_checkpoint="latest",  # the first run starts, later runs resume
        )
    weights = b"".join(w.numpy().tobytes() for w in trial.model.state_dict().values())
    print("weights:", hashlib.sha256(weights).hexdigest()[:16])


if __name__ == "__main__":
    main()
