"""Train a module written for Lightning on images of digits.

python train.py                          by itself
det experiment create adaptive.yaml .    as a search on the platform, which can pause and resume it
"""

from __future__ import annotations

import argparse

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import determined as det
from determined.lightning import DetCallback


class Digits(L.LightningModule):
    def __init__(self, learning_rate: float = 3e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        images, labels = batch
        right = (self.net(images).argmax(dim=1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), self.hparams["learning_rate"])


def build_loaders() -> tuple[DataLoader, DataLoader]:
    data = load_digits()
    images = torch.tensor(data.data, dtype=torch.float32) / 16
    everything = TensorDataset(images, torch.tensor(data.target))
    generator = torch.Generator().manual_seed(0)
    train, validation = random_split(everything, [0.8, 0.2], generator)
    return DataLoader(train, 32, shuffle=True), DataLoader(validation, 128)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a Lightning module.")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()

    L.seed_everything(7, verbose=False)
    info = det.get_cluster_info()
    module = Digits(**(info.trial.hparams if info is not None else {}))
    callback = DetCallback()
    trainer = L.Trainer(
        max_epochs=args.epochs,
        callbacks=[callback],
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=10,
    )
    train, validation = build_loaders()
    trainer.fit(module, train, validation, ckpt_path=callback.latest())
    (result,) = trainer.validate(module, validation, verbose=False)
    print(f"{result['accuracy']:.1%} of the held-out digits are right.")


if __name__ == "__main__":
    main()
