"""Datasets with random contents, and loaders with every kind of order over them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from determined.pytorch import samplers


class Noisy(Dataset[Any]):
    """Sample `i` is its number, with noise from all three generators."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        if not 0 <= index < self.length:
            raise IndexError(index)
        return index, random.random(), float(np.random.rand()), float(torch.rand(()))

    def __len__(self) -> int:
        return self.length


class NumpySampler(Sampler[int]):
    """Draws from numpy's global generator, and from `random` on the way."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        for index in np.random.permutation(self.length).tolist():
            yield (index + random.randrange(self.length)) % self.length

    def __len__(self) -> int:
        return self.length


class RememberingSampler(Sampler[int]):
    """Has a generator of its own, which no one can see, and no length."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.rng = np.random.default_rng(3)

    def __iter__(self) -> Iterator[int]:
        return iter(self.rng.permutation(self.length).tolist())


class EpochSampler(Sampler[int]):
    """Starts one further in each epoch, as `set_epoch` says."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter((i + self.epoch) % self.length for i in range(self.length))

    def __len__(self) -> int:
        return self.length


class StatefulSampler(EpochSampler):
    """Counts its passes; only `load_state_dict` brings it to another one."""

    set_epoch = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[int]:
        self.epoch += 1
        return super().__iter__()

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch = state["epoch"]


class InfiniteBatches:
    """Never ends and grows: batch k is [k % n] * (k % 3 + 1)."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[list[int]]:
        return ([k % self.length] * (k % 3 + 1) for k in itertools.count())


class Stream(IterableDataset[Any]):
    """Samples like those of `Noisy`, in an order from the global generators; it has no length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        numbers = list(range(self.length))
        random.shuffle(numbers)
        for number in numbers:
            yield number, random.random(), float(np.random.rand()), float(torch.rand(()))


class StatefulStream(Stream):
    """Knows where it is, also in the middle of an epoch."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.read = 0

    def __iter__(self) -> Iterator[Any]:
        is_over = False
        while not is_over:
            self.read += 1
            is_over = self.read % self.length == 0
            noise = random.random(), float(np.random.rand()), float(torch.rand(()))
            yield self.read, *noise

    def state_dict(self) -> dict[str, int]:
        return {"read": self.read}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.read = state["read"]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(11)


def kinds(n: int, batch_size: int) -> dict[str, dict[str, Any]]:
    """Return the arguments of loaders with every kind of order, fresh ones at each call."""
    batched = {"batch_size": batch_size}
    shared = generator()
    return {
        "sequential": {**batched},
        "drop last": {"batch_size": min(batch_size, n), "drop_last": True, "shuffle": True},
        "shuffle": {**batched, "shuffle": True},
        "generator": {**batched, "shuffle": True, "generator": generator()},
        "weighted": {
            **batched,
            "sampler": WeightedRandomSampler([1.0 + i for i in range(n)], 2 * n),
        },
        "weighted with generator": {
            **batched,
            "sampler": WeightedRandomSampler([1.0] * n, n, generator=shared),
            "generator": shared,
        },
        "subset": {**batched, "sampler": SubsetRandomSampler(range(0, n, 2))},
        "replacement": {**batched, "sampler": RandomSampler(range(n), True, n + 3)},
        "numpy": {**batched, "sampler": NumpySampler(n)},
        "remembering": {**batched, "sampler": RememberingSampler(n)},
        "epoch": {**batched, "sampler": EpochSampler(n)},
        "stateful": {**batched, "sampler": StatefulSampler(n)},
        "list": {**batched, "sampler": [n - 1, 0, 0]},
        "reproducible": {**batched, "sampler": samplers.ReproducibleShuffleSampler(range(n), 5)},  # type: ignore[arg-type]
        "batches": {"batch_sampler": [[0, n - 1], [n // 2]]},
        "infinite batches": {"batch_sampler": InfiniteBatches(n)},
    }


KINDS = list(kinds(5, 2))


def arguments_of(kind: str, n: int, batch_size: int) -> dict[str, Any]:
    return kinds(n, batch_size)[kind]
