"""Which samples make up which batch: a function of (seed, epoch, position), never of the past.

All ranks see one endless global sequence of batches and take every `size`-th. `IndexOrder` knows
each epoch's samples as one permutation and jumps anywhere; `SamplerOrder` iterates any sampler.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from determined.pytorch._fetch import Indices, draw_base_seed, has_state, sized
from determined.pytorch._seed import PrivateRNG, mix
from determined.pytorch.samplers import (
    DistributedBatchSampler,
    RepeatBatchSampler,
    RepeatSampler,
    SkipBatchSampler,
    SkipSampler,
)
from determined.pytorch.samplers import DistributedSampler as ShardSampler

logger = logging.getLogger("determined.pytorch")

_CHUNK = 64  # batches read from a sampler per swap of the generators
_STATELESS = (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    DistributedSampler,
    RepeatSampler,
    RepeatBatchSampler,
    ShardSampler,
    DistributedBatchSampler,
    SkipSampler,
    SkipBatchSampler,
    list,
    tuple,
    range,
    torch.Tensor,
)


class Order(Protocol):
    """An endless global sequence of batches, opened somewhere."""

    def batches(self, rank: int, size: int) -> Iterator[Indices]:
        """Return this rank's batches from the opening position on, endlessly."""

    def position(self, ahead: int) -> dict[str, Any]:
        """Return where the sequence is, `ahead` global batches after the opening."""


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

    def batches(self, rank: int, size: int) -> Iterator[Indices]:
        ahead = rank
        while True:
            epoch, first = self._locate(ahead)
            order = self.permutation(epoch) if self.permutation else range(self.length)
            end = first + self._num_batches(first) * self.batch_size
            for begin in range(first, end, self.batch_size * size):
                yield order[begin : begin + self.batch_size]
                ahead += size

    def position(self, ahead: int) -> dict[str, Any]:
        epoch, record = self._locate(ahead)
        return {"epoch": epoch, "record": record}

    def moved(self, ahead: int) -> IndexOrder:
        """Return the same order, opened `ahead` global batches later."""
        epoch, record = self._locate(ahead)
        return replace(self, epoch=epoch, record=record)

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


def index_order(loader: Any, seed: int) -> IndexOrder | None:
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
    if sampler.generator is None:
        return IndexOrder(length, size, drop_last, _Shuffle(length, seed))
    is_shared = sampler.generator is loader.generator
    return IndexOrder(length, size, drop_last, _UserShuffle(length, sampler.generator, is_shared))


class _Shuffle:
    """One epoch's permutation from a private generator."""

    def __init__(self, length: int, seed: int) -> None:
        self._length = length
        self._seed = seed

    def __call__(self, epoch: int) -> torch.Tensor:
        return torch.randperm(self._length, generator=self._generator(epoch))

    def _generator(self, epoch: int) -> torch.Generator:
        return torch.Generator().manual_seed(mix(self._seed, epoch))


class _UserShuffle(_Shuffle):
    """The user's generator gives epoch 0 as torch's loader would; its seed gives the others."""

    def __init__(self, length: int, generator: torch.Generator, is_shared: bool) -> None:
        super().__init__(length, generator.initial_seed())
        self._state = generator.get_state()
        self._is_shared = is_shared

    def _generator(self, epoch: int) -> torch.Generator:
        if epoch > 0:
            return super()._generator(epoch)
        generator = torch.Generator()
        generator.set_state(self._state)
        if self._is_shared:
            draw_base_seed(generator)
        return generator


class SamplerOrder:
    """Any sampler or batch sampler, iterated under generators seeded for the epoch.

    A position is an epoch and a batch in it. Samplers that keep no state between epochs, that have
    `set_epoch`, or that have `state_dict` and `load_state_dict`, are opened at that epoch. Others
    may remember earlier epochs, so these are read again, indices only.
    """

    def __init__(self, loader: Any, seed: int) -> None:
        self._loader = loader
        self._seed = seed
        self._chain = _chain(loader.batch_sampler)
        self._generators = [
            (g, g.get_state(), g.initial_seed())
            for g in (getattr(part, "generator", None) for part in self._chain)
            if isinstance(g, torch.Generator)
        ]
        self._opened: dict[str, Any] = {"epoch": 0, "batch": 0}
        self._starts: list[tuple[int, dict[str, Any]]] = []

    def open_at(self, position: dict[str, Any]) -> None:
        """Start at a position that an equal order returned."""
        self._opened = position

    def batches(self, rank: int, size: int) -> Iterator[Indices]:
        return itertools.islice(self._global_batches(), rank, None, size)

    def position(self, ahead: int) -> dict[str, Any]:
        while len(self._starts) > 1 and self._starts[1][0] <= ahead:
            del self._starts[0]
        if not self._starts or self._starts[0][0] > ahead:
            return {**self._opened, "batch": self._opened["batch"] + ahead}
        first, start = self._starts[0]
        return {**start, "batch": ahead - first}

    def _global_batches(self) -> Iterator[list[Any]]:
        epoch, skip = self._opened["epoch"], self._opened["batch"]
        states = self._opened.get("samplers")
        if not self._can_jump(states):
            if epoch:
                logger.info("Reading the sampler's first %d epochs again, indices only.", epoch)
            for earlier in range(epoch):
                for _ in self._epoch(earlier, None):
                    pass
            states = None
        index = -skip
        while True:
            for begins, batch in self._epoch(epoch, states):
                if begins is not None:
                    self._starts.append((index, begins))
                if index >= 0:
                    yield batch
                index += 1
            epoch, states = epoch + 1, None

    def _epoch(
        self, epoch: int, states: list[Any] | None
    ) -> Iterator[tuple[dict[str, Any] | None, list[Any]]]:
        """Yield the batches of an epoch, the first one with the position of its beginning."""
        rng = PrivateRNG(mix(self._seed, epoch))
        with rng:
            begins: dict[str, Any] | None = self._begin(epoch, states)
            iterator = iter(self._loader.batch_sampler)
        is_empty = True
        while chunk := self._read(rng, iterator):
            is_empty = False
            for batch in chunk:
                yield begins, batch
                begins = None
        if is_empty:
            raise empty_error("its sampler gave no batch in a whole epoch")

    @staticmethod
    def _read(rng: PrivateRNG, iterator: Iterator[list[Any]]) -> list[list[Any]]:
        with rng:
            return list(itertools.islice(iterator, _CHUNK))

    def _begin(self, epoch: int, states: list[Any] | None) -> dict[str, Any]:
        """Bring all parts of the sampler to the start of an epoch; return that position."""
        for generator, state, initial_seed in self._generators:
            if epoch > 0:
                generator.manual_seed(mix(initial_seed, epoch))
            else:
                generator.set_state(state)
                if generator is self._loader.generator:
                    draw_base_seed(generator)
        for part in self._chain:
            if callable(getattr(part, "set_epoch", None)) and not (states and has_state(part)):
                part.set_epoch(epoch)
        stateful = [part for part in self._chain if has_state(part)]
        for part, state in zip(stateful, states or [], strict=False):
            part.load_state_dict(state)
        position: dict[str, Any] = {"epoch": epoch, "batch": 0}
        if stateful:
            position["samplers"] = [part.state_dict() for part in stateful]
        return position

    def _can_jump(self, states: list[Any] | None) -> bool:
        return all(
            type(part) in _STATELESS
            or callable(getattr(part, "set_epoch", None))
            or (states is not None and has_state(part))
            for part in self._chain
        )


def _chain(sampler: Any) -> list[Any]:
    """Return a sampler and the samplers it wraps, outermost first."""
    chain: list[Any] = []
    while sampler is not None and not any(sampler is part for part in chain):
        chain.append(sampler)
        inner = getattr(sampler, "batch_sampler", None)
        sampler = getattr(sampler, "sampler", None) if inner is None else inner
    return chain


def empty_error(why: str) -> RuntimeError:
    """Return the error for training data without a single batch."""
    return RuntimeError(
        f"The loader from build_training_data_loader() gives no batches: {why}. "
        "Check the dataset's length, and batch_size if drop_last is set."
    )
