"""Which samples make up which batch: a function of (seed, epoch, position), never of the past.

All ranks see one endless global sequence of batches and take every `size`-th. `IndexOrder` knows
each epoch's samples as one permutation and jumps anywhere; `SamplerOrder` iterates any sampler.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from determined.pytorch._data.fetch import Indices, draw_base_seed, has_state, sized
from determined.pytorch._data.seed import PrivateRNG, mix
from determined.pytorch.samplers import (
    DistributedBatchSampler,
    RepeatBatchSampler,
    RepeatSampler,
    SkipBatchSampler,
    SkipSampler,
)
from determined.pytorch.samplers import DistributedSampler as ShardSampler

logger = logging.getLogger("determined.pytorch")

_CHUNK = 64  # batches read at once from a sampler, or from a permutation
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
    """An endless global sequence of batches, from some start on."""

    @property
    def kind(self) -> str:
        """What its positions are about: those of another kind do not fit."""

    def starting_at(self, position: dict[str, Any]) -> Order:
        """Return the order from a position on that an equal one gave."""

    def starting_after(self, batches: int) -> Order:
        """Return the order without its first batches, where no position is known."""

    def batches(self, rank: int, size: int, as_lists: bool = False) -> Iterator[Indices]:
        """Return this rank's batches from the start on, endlessly."""

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


class UserGenerators:
    """The generators in a loader's samplers: as torch has them in epoch 0, by their seeds later."""

    def __init__(self, loader: Any) -> None:
        self._shared = loader.generator
        self._all = generators_of(loader.batch_sampler)
        self._seeds = [generator.initial_seed() for generator in self._all]
        self._states = [generator.get_state() for generator in self._all]

    def begin(self, epoch: int) -> None:
        """Bring the generators to the start of an epoch."""
        for generator, seed, state in zip(self._all, self._seeds, self._states, strict=True):
            if epoch > 0:
                generator.manual_seed(mix(seed, epoch))
                continue
            generator.set_state(state)
            if generator is self._shared:
                draw_base_seed(generator)

    def state_dict(self) -> dict[str, Any]:
        """Return what a new process needs if it has seeded its generators differently."""
        return {"seeds": self._seeds, "states": self._states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin epochs as the run did that gave `state`."""
        if len(state["seeds"]) == len(self._all):
            self._seeds, self._states = list(state["seeds"]), list(state["states"])


def generators_of(sampler: Any, *others: Any) -> list[torch.Generator]:
    """Return all generators that a sampler and those in it have as `generator`."""
    found = [getattr(part, "generator", None) for part in _chain(sampler)]
    by_identity = {id(g): g for g in (*found, *others) if isinstance(g, torch.Generator)}
    return list(by_identity.values())


class SamplerOrder:
    """Any sampler or batch sampler, iterated under generators seeded for the epoch.

    A position is an epoch and a record in it, or a batch in it if only the user's batch sampler
    knows what a batch is. Samplers that keep no state between epochs, that have `set_epoch`, or
    that have `state_dict` and `load_state_dict`, are opened at that epoch. Others may remember
    earlier epochs, so these are read again, indices only.
    """

    def __init__(
        self,
        loader: Any,
        seed: int,
        generators: UserGenerators,
        start: dict[str, Any] | None = None,
        dropped: int = 0,
    ) -> None:
        self._made_of = loader, seed, generators
        self._batching = loader.batch_sampler
        self._seed = seed
        self._generators = generators
        self._chain = _chain(self._batching)
        self._counts_records = type(self._batching) is BatchSampler
        self.kind = "sampler" if self._counts_records else "batch sampler"
        self._start = start or {"epoch": 0, "offset": 0}
        self._dropped = dropped  # batches to read and not hand out
        self._starts: list[tuple[int, dict[str, Any]]] = []
        self._source = self._global_batches()
        self._num_read = 0
        self._unused: deque[list[Any]] = deque()  # the last of those that were read

    def starting_at(self, position: dict[str, Any]) -> SamplerOrder:
        keys = position.keys() & {"epoch", "offset", "samplers"}
        return SamplerOrder(*self._made_of, {key: position[key] for key in keys})

    def starting_after(self, batches: int) -> SamplerOrder:
        length = sized(self._batching)
        if length is None:
            return SamplerOrder(*self._made_of, dropped=batches)
        epoch, batch = divmod(batches, length)
        return self.starting_at({"epoch": epoch, "offset": batch * self._step})

    def batches(self, rank: int, size: int, as_lists: bool = False) -> Iterator[Indices]:
        for mine in itertools.count(self._dropped + rank, size):
            while self._num_read <= mine:
                self._read_next()
            while len(self._unused) > self._num_read - mine:
                self._unused.popleft()
            yield self._unused.popleft()

    def position(self, ahead: int) -> dict[str, Any]:
        ahead += self._dropped
        while self._num_read < ahead:  # else it could be in a later epoch than the last one seen
            self._read_next()
        while len(self._starts) > 1 and self._starts[1][0] <= ahead:
            del self._starts[0]
        first, start = self._starts[0] if self._starts else (0, self._start)
        return {**start, "offset": start["offset"] + (ahead - first) * self._step}

    def _read_next(self) -> None:
        self._unused.append(next(self._source))
        self._num_read += 1

    @property
    def _step(self) -> int:
        """How far a batch moves the offset."""
        return int(self._batching.batch_size) if self._counts_records else 1

    def _global_batches(self) -> Iterator[list[Any]]:
        epoch, skip = self._start["epoch"], self._start["offset"]
        states = self._start.get("samplers")
        if not self._can_jump(states):
            if epoch:
                logger.info("Rereading the sampler's first %d epochs (indices only).", epoch)
            for earlier in range(epoch):
                for _ in self._epoch(earlier, 0, None):
                    pass
            states = None
        index = 0
        while True:
            for begins, batch in self._epoch(epoch, skip, states):
                if begins is not None:
                    self._starts.append((index, begins))
                yield batch
                index += 1
            epoch, skip, states = epoch + 1, 0, None

    def _epoch(
        self, epoch: int, skip: int, states: list[Any] | None
    ) -> Iterator[tuple[dict[str, Any] | None, list[Any]]]:
        """Yield the batches of an epoch, the first one with the position of its beginning."""
        rng = PrivateRNG(mix(self._seed, epoch))
        with rng:
            begins: dict[str, Any] | None = {**self._begin(epoch, states), "offset": skip}
            iterator = self._read_epoch(skip)
        is_empty = skip == 0
        while chunk := self._read_chunk(rng, iterator):
            is_empty = False
            for batch in chunk:
                yield begins, batch
                begins = None
        if is_empty:
            raise empty_error("its sampler gave no batch in a whole epoch")

    def _read_epoch(self, skip: int) -> Iterator[list[Any]]:
        if not self._counts_records:
            return itertools.islice(self._batching, skip, None)
        samples = itertools.islice(self._batching.sampler, skip, None)
        batches = iter(lambda: list(itertools.islice(samples, self._step)), [])
        if not self._batching.drop_last:
            return batches
        return (batch for batch in batches if len(batch) == self._step)

    @staticmethod
    def _read_chunk(rng: PrivateRNG, iterator: Iterator[list[Any]]) -> list[list[Any]]:
        with rng:
            return list(itertools.islice(iterator, _CHUNK))

    def _begin(self, epoch: int, states: list[Any] | None) -> dict[str, Any]:
        """Bring all parts of the sampler to the start of an epoch; return that position."""
        self._generators.begin(epoch)
        for part in self._chain:
            if callable(getattr(part, "set_epoch", None)) and not (states and has_state(part)):
                part.set_epoch(epoch)
        stateful = [part for part in self._chain if has_state(part)]
        for part, state in zip(stateful, states or [], strict=False):
            part.load_state_dict(state)
        position: dict[str, Any] = {"epoch": epoch}
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


def as_list(indices: Indices) -> list[Any]:
    """Return indices in a form that is cheap to take apart and to send to a worker process."""
    return indices.tolist() if isinstance(indices, torch.Tensor) else list(indices)
