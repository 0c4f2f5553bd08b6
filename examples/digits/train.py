"""Train a small convolutional net on scikit-learn's handwritten digits, on any machine.

python train.py                          train for 15 epochs
python train.py --resume --epochs 30     resume from the latest checkpoint
det experiment create adaptive.yaml .    search for better hyperparameters
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import determined as det
from determined import pytorch


def digits(train: bool) -> TensorDataset:
    """Return 8x8 images of digits and their labels: every fifth one is kept for validation."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    held_out = torch.arange(len(labels)) % 5 == 0
    chosen = ~held_out if train else held_out
    return TensorDataset(images[chosen], labels[chosen])


class DigitsTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        model = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.25),
            nn.Linear(64 * 4 * 4, 10),
        )
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.model.parameters(), lr=context.get_hparam("learning_rate"))
        )
        self.loss = nn.CrossEntropyLoss()

    def build_training_data_loader(self) -> pytorch.DataLoader:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(digits(train=True), batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits(train=False), batch_size=128)

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
        scores = self.model(images)
        accuracy = (scores.argmax(dim=1) == labels).float().mean()
        return {"validation_loss": self.loss(scores, labels), "accuracy": accuracy}

    def evaluation_reducer(self) -> pytorch.Reducer:
        return pytorch.Reducer.SAMPLE_AVG  # every image has the same weight, even in a short batch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--resume", action="store_true", help="continue from the latest checkpoint")
    args = parser.parse_args()

    torch.set_num_threads(1)  # a net this small gains nothing from more
    hparams = {"global_batch_size": 32, "learning_rate": 2e-3}
    info = det.get_cluster_info()
    if info is not None and info.trial is not None:  # on the platform, the search chooses them
        hparams = info.trial.hparams
    with pytorch.init(hparams=hparams, seed=7) as context:
        trainer = pytorch.Trainer(DigitsTrial(context), context)
        trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(1),
            metric="accuracy",
            smaller_is_better=False,
            latest_checkpoint="latest" if args.resume else None,
        )

    if context.distributed.rank == 0 and trainer.latest_checkpoint is not None:
        trial = pytorch.load_trial_from_checkpoint_path(trainer.latest_checkpoint, DigitsTrial)
        images, labels = digits(train=False)[:]
        accuracy = (trial.model.eval()(images).argmax(dim=1) == labels).float().mean()
        print(f"""
Loaded the checkpoint again: {accuracy:.1%} of {len(labels)} held-out digits are right.
  validations above average over images; by default they average over batches (Reducer.AVG).
  in Python:    pytorch.load_trial_from_checkpoint_path("{trainer.latest_checkpoint}")
  train more:   python train.py --resume --epochs {args.epochs * 2}""")


if __name__ == "__main__":
    main()
