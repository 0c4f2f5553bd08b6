"""Train a table of configurations x epochs on scikit-learn's data, once.

python -m benchmarks.search.tables      writes benchmarks/results/search-curves.npz
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from typing import Any

import numpy as np
import torch

from benchmarks.search.space import SPACE
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.space import Space

EPOCHS, CONFIGURATIONS = 27, 1000
TASKS = ("digits", "cancer", "moons", "blobs")
PATH = pathlib.Path(__file__).resolve().parents[1] / "results" / "search-curves.npz"
_WORST = 5.0  # a loss above it is no better than any other


def configurations() -> list[dict[str, Any]]:
    """Return the configurations of the table: random ones, always the same."""
    space, stream = Space(SPACE), Stream(2024)
    return [space.values(space.draw(stream)) for _ in range(CONFIGURATIONS)]


def data(task: str) -> tuple[Any, Any, Any, Any]:
    """Return inputs and labels to train on, then those to validate on."""
    from sklearn import datasets
    from sklearn.preprocessing import StandardScaler

    if task == "digits":
        inputs, labels = datasets.load_digits(return_X_y=True)
        inputs, labels, train = inputs[:1100], labels[:1100], 300
    elif task == "cancer":
        inputs, labels = datasets.load_breast_cancer(return_X_y=True)
        train = 250
    elif task == "moons":
        inputs, labels = datasets.make_moons(1000, noise=0.25, random_state=0)
        train = 300
    else:
        inputs, labels = datasets.make_classification(
            1200, n_features=20, n_informative=8, n_classes=4, flip_y=0.05, random_state=0
        )
        train = 400
    order = np.random.RandomState(0).permutation(len(labels))
    inputs, labels = StandardScaler().fit_transform(inputs)[order], labels[order]
    return inputs[:train], labels[:train], inputs[train:], labels[train:]


def curves(task: str, chosen: list[dict[str, Any]]) -> Any:
    """Train all configurations of one batch size side by side; return losses after each epoch.

    A network with fewer hidden units is one with the rest switched off, so that one batched product
    trains hundreds of networks; each has its own solver, rate and decay.
    """
    inputs, labels, more_inputs, more_labels = (torch.as_tensor(part) for part in data(task))
    inputs, more_inputs = inputs.float(), more_inputs.float()
    losses = torch.full((len(chosen), EPOCHS), _WORST)
    for size in SPACE["batch_size"]["vals"]:
        rows = [i for i, hparams in enumerate(chosen) if hparams["batch_size"] == size]
        nets = _Nets([chosen[i] for i in rows], inputs.shape[1], int(labels.max()) + 1)
        generator = torch.Generator().manual_seed(0)
        for epoch in range(EPOCHS):
            order = torch.randperm(len(labels), generator=generator)
            for start in range(0, len(labels), size):
                batch = order[start : start + size]
                nets.train(inputs[batch], labels[batch])
            with torch.no_grad():
                losses[rows, epoch] = nets.losses(more_inputs, more_labels)
    return losses.nan_to_num(_WORST).clamp(max=_WORST).numpy()


class _Nets:
    """Networks with one hidden layer, one per configuration."""

    def __init__(self, chosen: list[dict[str, Any]], num_inputs: int, num_classes: int) -> None:
        torch.manual_seed(0)
        width = SPACE["hidden"]["maxval"]

        def column(name: str) -> torch.Tensor:
            return torch.tensor([float(hparams[name]) for hparams in chosen])[:, None, None]

        hidden = column("hidden")
        self._on = (torch.arange(width)[None, None] < hidden).float()
        self._relu = torch.tensor([h["activation"] == "relu" for h in chosen])[:, None, None]
        self._adam = torch.tensor([h["solver"] == "adam" for h in chosen])[:, None, None]
        self._rate, self._decay, self._momentum = column("lr"), column("alpha"), column("momentum")
        shapes = ((num_inputs, width), (1, width), (width, num_classes), (1, num_classes))
        bounds = ((6 / (num_inputs + hidden)).sqrt(), (6 / (num_classes + hidden)).sqrt())
        self._weights = [
            ((torch.rand(len(chosen), *shape) * 2 - 1) * bounds[i // 2]).requires_grad_()
            for i, shape in enumerate(shapes)
        ]
        self._means = [torch.zeros_like(weight) for weight in self._weights]
        self._squares = [torch.zeros_like(weight) for weight in self._weights]
        self._steps = 0

    def losses(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of each network."""
        first, first_bias, second, second_bias = self._weights
        mixed = inputs @ first + first_bias
        active = torch.where(self._relu, mixed.relu(), mixed.tanh()) * self._on
        scores = (active @ second + second_bias).log_softmax(dim=-1)
        picked = scores.gather(2, labels[None, :, None].expand(len(scores), -1, 1))
        return -picked.mean(dim=(1, 2))

    def train(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        """Take one step with each network's own solver."""
        gradients = torch.autograd.grad(self.losses(inputs, labels).sum(), self._weights)
        self._steps += 1
        with torch.no_grad():
            for weight, gradient, mean, square in zip(
                self._weights, gradients, self._means, self._squares, strict=True
            ):
                gradient = gradient + self._decay * weight
                kept = torch.where(self._adam, torch.tensor(0.9), self._momentum)
                fresh = torch.where(self._adam, torch.tensor(0.1), torch.tensor(1.0))
                mean.mul_(kept).add_(fresh * gradient)
                square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                corrected = mean / (1 - 0.9**self._steps)
                scale = (square / (1 - 0.999**self._steps)).sqrt() + 1e-8
                weight -= self._rate * torch.where(self._adam, corrected / scale, mean)


def main() -> None:
    chosen = configurations()
    found: dict[str, Any] = {}
    for task in TASKS:
        began = time.monotonic()
        found[task] = curves(task, chosen)
        print(f"{task}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    PATH.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(PATH, configurations=json.dumps(chosen), **found)
    print(f"Written to {PATH}")


if __name__ == "__main__":
    main()
