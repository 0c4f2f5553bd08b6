"""What all scripts train: a net with dropout on noisy images of digits, 45 batches an epoch."""

from __future__ import annotations

import argparse
import hashlib
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

EPOCHS = 20
BATCH_SIZE = 32
SEED = 7
RATE = 1e-3


def options() -> argparse.Namespace:
    """`--folder` for checkpoints, and `--every` how many batches one is saved; 0: every epoch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--every", type=int, default=0)
    torch.set_num_threads(1)
    return parser.parse_args()


def dataset() -> TensorDataset:
    """The images for training of `determined.demo`, with their labels."""
    with (files("determined.demo") / "files" / "digits.npz").open("rb") as file:
        data = np.load(file)
        images = torch.tensor(data["images"], dtype=torch.float32).unsqueeze(1) / 16
        labels = torch.tensor(data["labels"], dtype=torch.int64)
    chosen = torch.arange(len(labels)) % 5 != 0
    return TensorDataset(images[chosen], labels[chosen])


def build() -> nn.Module:
    """The net, with the same weights each time if the generator is seeded."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(16 * 4 * 4, 10),
    )


def loss_of(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The loss on images with noise that is drawn anew for each batch."""
    noisy = images + 0.1 * torch.randn_like(images)
    return nn.functional.cross_entropy(model(noisy), labels)


def tell_batch(number: int) -> None:
    """Say how many batches are trained: whoever kills waits for it."""
    print(f"batch {number}", flush=True)


def tell_weights(model: nn.Module) -> None:
    """Say which weights came out, as a fingerprint."""
    weights = b"".join(w.detach().numpy().tobytes() for w in model.state_dict().values())
    print("weights", hashlib.sha256(weights).hexdigest()[:16], flush=True)
