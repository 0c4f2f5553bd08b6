"""What an order of batches is, and the one of loaders without a sampler of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from determined.pytorch._data.errors import sized
from determined.pytorch._data.fetch import Indices, as_list
from determined.pytorch._data.order.nested_samplers import UserGenerators
from determined.pytorch._data.seed import mix

_CHUNK = 64  # batches taken at once from a permutation


class Order(Protocol):
    """A global sequence of batches without end, from some start on."""

    @property
    def kind(self) -> str:
        """What its positions are about: those of another kind do not fit."""

    def starting_at(self, position: dict[str, Any]) -> Order:
        """Return the order from a position on that an equal one gave."""

    def starting_after(self, batches: int) -> Order:
        """Return the order without its first batches, where no position is known."""

    def batches(self, rank: int, size: int, as_lists: bool = False) -> Iterator[Indices]:
        """Return this rank's batches from the start on, without end."""

    def position(self, ahead: int) -> dict[str, Any]:
        """Return where the sequence is, `ahead` global batches after the start."""


@dataclass(frozen=True)
class IndexOrder:
    """Plain batches of a permutation per epoch; `permutation` is None for samples in their order.

    A position is an epoch and a record in it, so it holds for any batch size and world size.
    """

    length: int
    batch_size: int
    drop_last: bool
    permutation: Callable[[int], torch.Tensor] | None
    epoch: int = 0
    record: int = 0
    kind: ClassVar[str] = "index"

    def batches(self, rank: int, size: int, as_lists: bool = False) -> Iterator[Indices]:
        ahead, stride = rank, self.batch_size * size
        while True:
            epoch, first = self._locate(ahead)
            order = self.permutation(epoch) if self.permutation else range(self.length)
            end = first + self._num_batches(first) * self.batch_size
            for start in range(first, end, stride * _CHUNK):
                stop = min(start + stride * _CHUNK, end)
                some = as_list(order[start:stop]) if as_lists else order[start:stop]
                for begin in range(0, stop - start, stride):
                    yield some[begin : begin + self.batch_size]
                    ahead += size

    def position(self, ahead: int) -> dict[str, Any]:
        epoch, record = self._locate(ahead)
        return {"epoch": epoch, "record": record}

    def starting_at(self, position: dict[str, Any]) -> IndexOrder:
        return replace(self, epoch=position["epoch"], record=position["record"])

    def starting_after(self, batches: int) -> IndexOrder:
        return self.starting_at(self.position(batches))

    def _locate(self, ahead: int) -> tuple[int, int]:
        in_first = self._num_batches(self.record)
        if ahead < in_first:
            return self.epoch, self.record + ahead * self.batch_size
        epochs, batches = divmod(ahead - in_first, self._num_batches(0))
        return self.epoch + 1 + epochs, batches * self.batch_size

    def _num_batches(self, first: int) -> int:
        """Return how many batches an epoch has from record `first` on."""
        left = max(0, self.length - first)
        return left // self.batch_size if self.drop_last else -(-left // self.batch_size)


def index_order(loader: Any, seed: int, generators: UserGenerators) -> IndexOrder | None:
    """Return the order of a plain sequential or shuffled loader, None for any other sampler."""
    batching = loader.batch_sampler
    sampler: Any = getattr(batching, "sampler", None)
    if type(batching) is not BatchSampler or sized(sampler) is None:
        return None
    length, size, drop_last = len(sampler), batching.batch_size, batching.drop_last
    if type(sampler) is SequentialSampler:
        return IndexOrder(length, size, drop_last, None)
    if type(sampler) is not RandomSampler or sampler.replacement:
        return None
    if length != len(sampler.data_source):
        return None

    def permutation(epoch: int) -> torch.Tensor:
        generators.begin(epoch)
        generator = sampler.generator or torch.Generator().manual_seed(mix(seed, epoch))
        return torch.randperm(length, generator=generator)

    return IndexOrder(length, size, drop_last, permutation)
