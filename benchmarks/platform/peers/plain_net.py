"""The net of `scripts/net.py` in a plain loop: 20 batches of 4, then the loss of each once more."""

from __future__ import annotations

import sys


def train(lr: float) -> float:
    import torch

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    data = torch.utils.data.TensorDataset(torch.ones(80, 8), torch.ones(80, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    for inputs, targets in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    with torch.no_grad():
        losses = [torch.nn.functional.mse_loss(model(x), y).item() for x, y in loader]
    return sum(losses) / len(losses)


if __name__ == "__main__":
    print(train(float(sys.argv[1])))
