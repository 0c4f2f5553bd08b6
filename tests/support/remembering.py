"""Datasets and a sampler with a state of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import Dataset, Sampler

from tests.support.orders import Noisy


class Transform:
    """Draws from a generator that it was given."""

    def __init__(self, rng: Any, draw: Callable[[Any], float]) -> None:
        self.rng = rng
        self.draw = draw

    def __call__(self) -> float:
        return self.draw(self.rng)


class Counting(Noisy):
    """Sample `i` tells how many were read before it."""

    def __init__(self, length: int = 11) -> None:
        super().__init__(length)
        self.reads = 0

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return self.reads, *super().__getitem__(index)

    def state_dict(self) -> dict[str, int]:
        return {"reads": self.reads}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.reads = state["reads"]


class Transformed(Dataset[Any]):
    """Has a generator of its own, in a transform."""

    def __init__(self, rng: Any, draw: Callable[[Any], float]) -> None:
        self.transforms = [Transform(rng, draw)]

    def __getitem__(self, index: int) -> Any:
        return index, self.transforms[0]()

    def __len__(self) -> int:
        return 11


class Continuing(Sampler[int]):
    """Has the position inside an epoch in its state."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.epoch = self.given = 0

    def __iter__(self) -> Iterator[int]:
        while self.given < self.length:
            self.given += 1
            yield (self.given * 7 + self.epoch) % self.length
        self.epoch, self.given = self.epoch + 1, 0

    def __len__(self) -> int:
        return self.length

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.given = state["epoch"], state["given"]
