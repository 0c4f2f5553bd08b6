"""Train a softmax regression with numpy: the Core API works with your own loop in any framework.

python train.py                          by itself
det experiment create adaptive.yaml .    as a search on the platform, which can pause and resume it
"""

from __future__ import annotations

import argparse
from functools import cache
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import determined as det
from determined import core

BATCH = 32


@cache
def digits(train: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return images of digits and their labels: every fifth one is kept for validation."""
    data = load_digits()
    held_out = np.arange(len(data.target)) % 5 == 0
    chosen = ~held_out if train else held_out
    return data.data[chosen] / 16, data.target[chosen]


def probabilities(images: np.ndarray, weights: np.ndarray) -> np.ndarray:
    scores = np.exp(images @ weights)
    return scores / scores.sum(axis=1, keepdims=True)


def train_epoch(weights: np.ndarray, epoch: int, learning_rate: float) -> float:
    """Update the weights; return the mean loss. The order depends only on the epoch."""
    images, labels = digits(train=True)
    order = np.random.default_rng(epoch).permutation(len(labels))
    losses = []
    for batch in np.array_split(order, len(order) // BATCH):
        guesses = probabilities(images[batch], weights)
        losses.append(-np.log(guesses[np.arange(len(batch)), labels[batch]]).mean())
        guesses[np.arange(len(batch)), labels[batch]] -= 1
        weights -= learning_rate * images[batch].T @ guesses / len(batch)
    return float(np.mean(losses))


def evaluate(weights: np.ndarray) -> float:
    images, labels = digits(train=False)
    return float((probabilities(images, weights).argmax(axis=1) == labels).mean())


def train(context: core.Context, hparams: dict[str, Any], latest: str | None, epochs: int) -> None:
    weights, epoch = np.zeros((64, 10)), 0
    if latest is not None:  # resumed after a pause, or restarted after a failure
        with context.checkpoint.restore_path(latest) as path, np.load(path / "state.npz") as state:
            weights, epoch = state["weights"], int(state["epoch"])

    while epoch < epochs:
        loss = train_epoch(weights, epoch, hparams["learning_rate"])
        epoch += 1
        accuracy = evaluate(weights)
        context.train.report_training_metrics(epoch, {"loss": loss})
        context.train.report_validation_metrics(epoch, {"accuracy": accuracy, "epochs": epoch})
        context.train.report_progress(epoch / epochs)
        with context.checkpoint.store_path({"steps_completed": epoch}) as (path, _):
            np.savez(path / "state.npz", weights=weights, epoch=epoch)
        if context.preempt.should_preempt():  # paused, or stopped by the search
            return
    print(f"{evaluate(weights):.1%} of the held-out digits are right.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a softmax regression with numpy.")
    parser.add_argument("--epochs", type=int, default=9)
    args = parser.parse_args()

    info = det.get_cluster_info()
    hparams = {"learning_rate": 0.1} if info is None else info.trial.hparams
    latest_checkpoint = None if info is None else info.latest_checkpoint
    with core.init() as context:
        train(context, hparams, latest_checkpoint, args.epochs)


if __name__ == "__main__":
    main()
