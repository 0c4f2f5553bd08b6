"""The models and data that all contenders share, made from the same seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from benchmarks.job import Job
from benchmarks.turns import Clock

_SAMPLES = 2048


class Samples(Dataset[Any]):
    """A dataset that is read sample by sample; it repeats, so that training is one long epoch."""

    def __init__(self, inputs: torch.Tensor, labels: torch.Tensor, length: int) -> None:
        self._inputs, self._labels, self._length = inputs, labels, length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        index %= len(self._labels)
        return self._inputs[index], self._labels[index]

    def __len__(self) -> int:
        return self._length


class Tokens(nn.Module):
    """A small transformer that classifies sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.encoder(self.embedding(tokens)).mean(dim=1))
        return scores


class Frozen(nn.Module):
    """A small net that learns and 100 MB that do not: much to save, little to compute."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Parameter(torch.randn(25 * 2**20), requires_grad=False)
        self.layers = _dense(16, 32, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layers(inputs)
        return scores


@dataclasses.dataclass
class Workload:
    """What a contender trains. `loss` ticks the clock; `score` is for validation."""

    model: nn.Module
    dataset: Dataset[Any]
    validation_set: Dataset[Any]
    batch_size: int
    clock: Clock
    make_optimizer: Callable[[Any], torch.optim.Optimizer]

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return self.make_optimizer(model.parameters())

    def loss(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.clock.tick()
        return nn.functional.cross_entropy(scores, labels)

    def score(self, scores: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        accuracy = (scores.argmax(dim=1) == labels).float().mean()
        return {
            "validation_loss": nn.functional.cross_entropy(scores, labels),
            "accuracy": accuracy,
        }


def _dense(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width, next_width in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(width, next_width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _conv_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    )


def _vectors(width: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(_SAMPLES, width), torch.randint(0, classes, (_SAMPLES,))


def _digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    data = load_digits()
    return torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(
        data.target
    )


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def _adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-4)


def build(job: Job, clock: Clock) -> Workload:
    """Make the workload that a job names; all processes make the same."""
    torch.manual_seed(0)
    optimizer = _adam
    model: nn.Module
    if job.workload == "tiny":
        batch_size, model, data, optimizer = 8, _dense(16, 32, 2), _vectors(16, 2), _sgd
    elif job.workload == "mid":
        batch_size, model, data = 64, _dense(256, 512, 512, 10), _vectors(256, 10)
    elif job.workload == "conv":
        batch_size, model, data = 32, _conv_net(), _digits()
    elif job.workload == "transformer":
        tokens = torch.randint(0, 100, (_SAMPLES, 32)), torch.randint(0, 10, (_SAMPLES,))
        batch_size, model, data = 16, Tokens(), tokens
    elif job.workload == "tensors":
        batch_size, model, data, optimizer = 64, _dense(20, 32, 2), _vectors(20, 2), _sgd
    elif job.workload == "large":
        batch_size, model, data, optimizer = 8, Frozen(), _vectors(16, 2), _sgd
    else:
        raise ValueError(f"There is no workload {job.workload!r}.")
    length = job.batches * batch_size * job.ranks
    dataset: Dataset[Any] = Samples(*data, length)
    if job.workload == "tensors":
        copies = -(-length // _SAMPLES)
        dataset = TensorDataset(data[0].repeat(copies, 1)[:length], data[1].repeat(copies)[:length])
    validation_set = Samples(*data, max(job.validation_batches, 1) * batch_size * job.ranks)
    return Workload(model, dataset, validation_set, batch_size, clock, optimizer)
