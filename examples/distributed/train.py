"""Train on one process or on many, with the same script and the same result.

python train.py
torchrun --nproc_per_node 2 train.py
"""

from __future__ import annotations

import argparse
import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch


def digits(train: bool) -> TensorDataset:
    """Return images and labels: the first 1408, a multiple of the batch size, are for training."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    chosen = slice(None, 1408) if train else slice(1408, None)
    return TensorDataset(images[chosen], labels[chosen])


class DigitsTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * 4 * 4, 10),
        )
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        )

    def build_training_data_loader(self) -> pytorch.DataLoader:
        # Every rank builds a loader over the whole dataset; the trainer shards the batches.
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(digits(train=True), batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(digits(train=False), batch_size=50)

    def train_batch(
        self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int
    ) -> dict[str, torch.Tensor]:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)  # averages the gradients over all ranks
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict[str, int]:
        images, labels = batch
        return {"right": int((self.model(images).argmax(dim=1) == labels).sum())}

    def evaluation_reducer(self) -> pytorch.Reducer:
        return pytorch.Reducer.SUM  # over batches and ranks


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on any number of processes.")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()

    with pytorch.init(hparams={"global_batch_size": 64}, seed=7) as context:
        ranks = context.distributed
        trial = DigitsTrial(context)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(1),
            metric="right",
            smaller_is_better=False,
        )
        norm = float(torch.cat([p.detach().flatten() for p in trial.model.parameters()]).norm())
        share = f"rank {ranks.rank}: process {os.getpid()}, {context.get_per_slot_batch_size()} "
        gathered = ranks.gather((share + "images a batch, norm of the weights", norm))
        if gathered is not None:  # on the chief, which is rank 0
            for text, value in gathered:
                print(f"{text} {value:.5f}")

    if ranks.rank == 0:
        trial = pytorch.load_trial_from_checkpoint_path(trainer.latest_checkpoint, DigitsTrial)
        images, labels = digits(train=False)[:]
        accuracy = (trial.model.eval()(images).argmax(dim=1) == labels).float().mean()
        print(f"{accuracy:.1%} of {len(labels)} unseen digits are right.")


if __name__ == "__main__":
    main()
