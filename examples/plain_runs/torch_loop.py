"""A loop in plain torch, with two lines that make it a recorded run.

python torch_loop.py      then `det experiment list`, or `det dashboard`
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from determined import core


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network on digits.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    train, held_out = random_split(data, [0.8, 0.2])
    test_images, test_labels = held_out[:]
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), args.lr)
    loss_of = nn.CrossEntropyLoss()

    with core.init(
        name="digits with torch",
        project="examples/plain runs",
        labels=["torch"],
        hparams={"lr": args.lr},
        metric="val/loss",
    ) as context:
        for _ in range(args.epochs):
            for batch_images, batch_labels in DataLoader(train, 64, shuffle=True):
                optimizer.zero_grad()
                loss = loss_of(model(batch_images), batch_labels)
                loss.backward()
                optimizer.step()
                context.train.log({"train/loss": loss.item()})
            with torch.no_grad():
                scores = model(test_images)
            right = (scores.argmax(1) == test_labels).float().mean().item()
            error = loss_of(scores, test_labels).item()
            context.train.log({"val/loss": error, "val/accuracy": right})
    print(f"{right:.1%} of the held-out digits are right.")


if __name__ == "__main__":
    main()
