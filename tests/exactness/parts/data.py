"""Training data, by name: a function of the recipe's sizes that returns a loader."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    Dataset,
    IterableDataset,
    Sampler,
    WeightedRandomSampler,
    default_collate,
)

from determined import pytorch
from tests.support.orders import StatefulSampler

WIDTH = 4
Load = Callable[[int, int, int], Any]


class Records(Dataset[Any]):
    """Record `i`: its number and a few figures, always the same."""

    def __init__(self, length: int) -> None:
        self.rows = torch.randn(length, WIDTH, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, self.rows[index]


class Augmented(Records):
    """Draws from all three generators for each record."""

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        number, row = super().__getitem__(index)
        return number, row * random.random() + float(np.random.rand()) + torch.rand(WIDTH)


class Counting(Records):
    """Counts its reads, which change what it gives; it can say and take back how many."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.reads = 0

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        self.reads += 1
        number, row = super().__getitem__(index)
        return number, row + self.reads / 10

    def state_dict(self) -> dict[str, Any]:
        return {"reads": self.reads}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.reads = state["reads"]


class Stream(IterableDataset[Any]):
    """Records in an order that it draws anew for each pass; it has no length."""

    def __init__(self, length: int) -> None:
        self._records = Records(length)

    def __iter__(self) -> Iterator[Any]:
        numbers = list(range(len(self._records)))
        random.shuffle(numbers)
        for number in numbers:
            index, row = self._records[number]
            yield index, row + torch.rand(WIDTH)


class StatefulStream(IterableDataset[Any]):
    """Knows how much it has read, also in the middle of a pass."""

    def __init__(self, length: int) -> None:
        self._records = Records(length)
        self.read = 0

    def __iter__(self) -> Iterator[Any]:
        is_over = False
        while not is_over:
            index, row = self._records[self.read % len(self._records)]
            self.read += 1
            is_over = self.read % len(self._records) == 0
            yield index, row + self.read / 10

    def state_dict(self) -> dict[str, Any]:
        return {"read": self.read}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.read = state["read"]


class Reacting(Sampler[int]):
    """Prefers records with a large loss, of which `train_batch` tells it; its state says all."""

    def __init__(self, length: int) -> None:
        self.losses = [1.0] * length

    def tell(self, numbers: list[int], loss: float) -> None:
        for number in numbers:
            self.losses[number] = loss

    def __iter__(self) -> Iterator[int]:
        for turn in range(len(self.losses)):
            hardest = sorted(range(len(self.losses)), key=lambda i: (-self.losses[i], i))
            yield hardest[turn % 3]

    def __len__(self) -> int:
        return len(self.losses)

    def state_dict(self) -> dict[str, Any]:
        return {"losses": list(self.losses)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.losses = list(state["losses"])


class Drifting(Sampler[int]):
    """Has a state that changes with every record, not only with every pass."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.given = 0

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.length):
            self.given += 1
            yield (self.given * 5) % self.length

    def __len__(self) -> int:
        return self.length

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.given = state["given"]


def noisy(samples: list[Any]) -> Any:
    """Collate, and add noise to the whole batch."""
    numbers, rows = default_collate(samples)
    return numbers, rows + torch.rand(1) + random.random()


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def _loader(dataset: Any, batch_size: int, workers: int, **options: Any) -> pytorch.DataLoader:
    return pytorch.DataLoader(dataset, batch_size, num_workers=workers, **options)


def _torch_loader(dataset: Any, batch_size: int, workers: int, **options: Any) -> Any:
    return torch.utils.data.DataLoader(dataset, batch_size, num_workers=workers, **options)


DATA: dict[str, Load] = {
    "in order": lambda n, b, w: _loader(Records(n), b, w),
    "shuffled": lambda n, b, w: _loader(Records(n), b, w, shuffle=True),
    "augmented": lambda n, b, w: _loader(Augmented(n), b, w, shuffle=True),
    "without a short last batch": lambda n, b, w: _loader(
        Augmented(n), b, w, shuffle=True, drop_last=True
    ),
    "with a generator": lambda n, b, w: _loader(
        Records(n), b, w, shuffle=True, generator=_generator()
    ),
    "weighted": lambda n, b, w: _loader(
        Records(n), b, w, sampler=WeightedRandomSampler([1.0 + i for i in range(n)], n)
    ),
    "with a noisy collate": lambda n, b, w: _loader(
        Records(n), b, w, shuffle=True, collate_fn=noisy
    ),
    "a dataset with state": lambda n, b, w: _loader(Counting(n), b, w, shuffle=True),
    "a sampler with state": lambda n, b, w: _loader(Records(n), b, w, sampler=StatefulSampler(n)),
    "a sampler that drifts": lambda n, b, w: _loader(Records(n), b, w, sampler=Drifting(n)),
    "a sampler that reacts": lambda n, b, w: _loader(Records(n), b, w, sampler=Reacting(n)),
    "a stream": lambda n, b, w: _loader(Stream(n), b, w),
    "a stream with state": lambda n, b, w: _loader(StatefulStream(n), b, w),
    "torch's own loader": lambda n, b, w: _torch_loader(Records(n), b, w, shuffle=True),
    "torch's own loader, augmented": lambda n, b, w: _torch_loader(Augmented(n), b, w),
}


def validation_loader(kind: str) -> Any:
    """A few records, in order or shuffled by torch's own loader with a generator of its own."""
    if kind == "with a generator of its own":
        return _torch_loader(Augmented(5), 2, 0, shuffle=True, generator=_generator())
    return pytorch.DataLoader(Augmented(5), 2)
