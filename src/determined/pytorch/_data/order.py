"""Which samples make up which batch: a function of (seed, epoch, position), never of the past.

All ranks see one endless global sequence of batches and take every `size`-th. `IndexOrder` knows
each epoch's samples as one permutation and jumps anywhere; `SamplerOrder` iterates any sampler.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from determined.pytorch._data.fetch import Indices, draw_base_seed, sized
from determined.pytorch._data.part_states import PartStates, has_state
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

_HISTORY = 16  # batches that a consumer may hold back when it asks for the position
_CHUNK = 64  # batches read at once from a sampler, or from a permutation
_VALUES = {int, float, bool, str, type(None)}
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

    Samplers are read ahead of training, and may react to it. So a position also holds what was
    read ahead, and the state that the sampler was in after that; unless all of it is torch's own.
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
        self._stateful = [part for part in self._chain if has_state(part)]
        self._others = [part for part in self._chain if type(part) not in _STATELESS]
        self._own = PartStates(only_generators=True, sampler=self._others)
        self._counts_records = type(self._batching) is BatchSampler
        self.kind = "sampler" if self._counts_records else "batch sampler"
        self._start = start or {"epoch": 0, "offset": 0}
        self._dropped = dropped  # batches to read and not hand out
        self._read_ahead = loader.num_workers * (loader.prefetch_factor or 0)
        self._starts: list[tuple[int, dict[str, Any]]] = []
        self._rng = PrivateRNG(0)
        self._is_over = False  # the epoch that is being read
        self._check = 0, ""  # the items in the last chunk: how many, and a hash of them
        self._source = self._chunks()
        self._num_read = 0
        self._recent: deque[Any] = deque()  # the last of those that were read

    def starting_at(self, position: dict[str, Any]) -> SamplerOrder:
        loader = self._made_of[0]
        keys = {"epoch", "offset", "samplers", "own"}
        then = position.get("batch_size"), position.get("length")
        if then == (loader.batch_size, sized(loader.dataset)):  # else its indices may not exist
            keys.add("ahead")
        start = {key: position[key] for key in keys & position.keys()}
        return SamplerOrder(*self._made_of, start)

    def starting_after(self, batches: int) -> SamplerOrder:
        length = sized(self._batching)
        if length is None:
            return SamplerOrder(*self._made_of, dropped=batches)
        epoch, batch = divmod(batches, length)
        return self.starting_at({"epoch": epoch, "offset": batch * self._step})

    def batches(self, rank: int, size: int, as_lists: bool = False) -> Iterator[Indices]:
        num_kept = (self._read_ahead + _HISTORY) * size  # for positions before this batch
        for mine in itertools.count(self._dropped + rank, size):
            while self._num_read <= mine:
                self._read_chunk()
            while len(self._recent) > self._num_read - mine + num_kept:
                self._recent.popleft()
            yield self._recent[mine - self._num_read]

    def position(self, ahead: int) -> dict[str, Any]:
        ahead += self._dropped
        if ahead == self._num_read == 0:
            return self._start
        while self._num_read < ahead:  # else it could be in a later epoch than the last one seen
            self._read_chunk()
        while len(self._starts) > 1 and self._starts[1][0] <= ahead:
            del self._starts[0]
        first, start = self._starts[0]
        position = {**start, "offset": start["offset"] + (ahead - first) * self._step}
        num_unused = self._num_read - ahead
        if self._others and num_unused <= len(self._recent):
            unused = _plain(list(self._recent)[len(self._recent) - num_unused :])
            if unused is not None:
                position["ahead"] = self._position_ahead(ahead, unused)
        return position

    def _position_ahead(self, ahead: int, unused: list[list[Any]]) -> dict[str, Any]:
        """Return what lies between a position and where the sampler was read, and its state."""
        return {
            "batches": unused,
            "starts": [[first - ahead, start] for first, start in self._starts[1:]],
            "samplers": [copy.deepcopy(part.state_dict()) for part in self._stateful],
            "random": self._rng.state_dict(),
            "is_over": self._is_over,
            "check": list(self._check),
            "memory": self._memory(),
            "read_ahead": self._read_ahead,
        }

    @property
    def _step(self) -> int:
        """How far a batch moves the offset."""
        return int(self._batching.batch_size) if self._counts_records else 1

    # Reading.

    def _read_chunk(self) -> None:
        chunk = next(self._source)
        self._recent.extend(chunk)
        self._num_read += len(chunk)

    def _chunks(self) -> Iterator[list[Any]]:
        """Yield batches without end, as many at once as are read from the sampler."""
        start = {key: value for key, value in self._start.items() if key != "ahead"}
        ahead: dict[str, Any] | None = self._start.get("ahead")
        starts, num_ahead = [(0, start)], 0
        if ahead is not None:
            starts += [(first, later) for first, later in ahead["starts"]]
            num_ahead = len(ahead["batches"])
        first, last = starts[-1]
        epoch, states, own = last["epoch"], last.get("samplers"), last.get("own")
        skip = last["offset"] + (num_ahead - first) * self._step
        if not self._can_jump(states):
            self._reread(epoch)
            states = own = None
        self._starts = [] if ahead is None else starts
        self._own.load_state_dict(own or {})
        while True:
            yield from self._epoch(epoch, skip, states, ahead)
            epoch, skip, states, ahead = epoch + 1, 0, None, None

    def _reread(self, num_epochs: int) -> None:
        if num_epochs:
            logger.info("Rereading the sampler's first %d epochs (indices only).", num_epochs)
        for epoch in range(num_epochs):
            for _ in self._epoch(epoch, 0, None, None):
                pass

    def _epoch(
        self, epoch: int, skip: int, states: list[Any] | None, ahead: dict[str, Any] | None
    ) -> Iterator[list[Any]]:
        """Yield the batches of an epoch; `ahead` are those that were read before a resume."""
        self._rng, self._is_over = PrivateRNG(mix(self._seed, epoch)), False
        with self._rng:
            begins = {**self._begin(epoch, states), "offset": skip}
            items = iter(self._batching.sampler if self._counts_records else self._batching)
        if ahead is not None:
            self._continue(items, skip, ahead)
            yield [list(batch) for batch in ahead["batches"]]
        else:
            self._starts.append((self._num_read, begins))
            with self._rng:
                deque(itertools.islice(items, skip), maxlen=0)
        is_empty = skip == 0
        while not self._is_over:
            chunk = self._read_items(items)
            is_empty = is_empty and not chunk
            yield chunk
        if is_empty:
            raise empty_error("its sampler gave no batch in a whole epoch")

    def _read_items(self, items: Iterator[Any]) -> list[Any]:
        """Read a chunk from the sampler, and return its batches."""
        with self._rng:
            chunk = list(itertools.islice(items, _CHUNK * self._step))
        self._is_over = len(chunk) < _CHUNK * self._step
        if chunk and self._others:
            self._check = len(chunk), _hash(chunk)
        if not self._counts_records:
            return chunk
        step, drop_last = self._step, self._batching.drop_last
        end = len(chunk) - len(chunk) % step if drop_last else len(chunk)
        return [chunk[begin : begin + step] for begin in range(0, end, step)]

    def _continue(self, items: Iterator[Any], skip: int, ahead: dict[str, Any]) -> None:
        """Bring the sampler to where it was read, in the state that it had there."""
        count, known = self._check = tuple(ahead["check"])
        self._is_over = ahead["is_over"]
        with self._rng:
            given = deque(items if self._is_over else itertools.islice(items, skip), maxlen=count)
        if _hash(given) != known or self._memory() != ahead["memory"]:
            self._tell_of_reaction(ahead["read_ahead"])
        self._rng.load_state_dict(ahead["random"])
        for part, state in zip(self._stateful, ahead["samplers"], strict=False):
            part.load_state_dict(copy.deepcopy(state))

    def _tell_of_reaction(self, read_ahead: int) -> None:
        """Say what keeps a sampler from being exact that depends on more than its own past."""
        name = type(self._others[-1]).__name__
        if not self._stateful:
            logger.warning(
                "%s does not give the indices again that it gave before: it depends on something "
                "that is not saved, such as losses. From here on they may differ from those of an "
                "unbroken run; `state_dict` and `load_state_dict` on it make it exact.",
                name,
            )
        elif read_ahead != self._read_ahead:
            logger.warning(
                "%s reacts to training, and loader workers now read it %d batches ahead instead "
                "of %d: its indices will differ from those of an unbroken run. Keep `num_workers` "
                "and `prefetch_factor` to make it exact.",
                name,
                self._read_ahead,
                read_ahead,
            )

    def _memory(self) -> str:
        """Return a hash of what the sampler remembers: of its own reading, unless it reacts."""
        return _hash(
            _text(part.state_dict() if has_state(part) else getattr(part, "__dict__", {}))
            for part in self._others
        )

    def _begin(self, epoch: int, states: list[Any] | None) -> dict[str, Any]:
        """Bring all parts of the sampler to the start of an epoch; return that position."""
        own = self._own.state_dict()
        self._generators.begin(epoch)
        for part in self._chain:
            if callable(getattr(part, "set_epoch", None)) and not (states and has_state(part)):
                part.set_epoch(epoch)
        for part, state in zip(self._stateful, states or [], strict=False):
            part.load_state_dict(copy.deepcopy(state))
        position: dict[str, Any] = {"epoch": epoch}
        if own:
            position["own"] = own
        if self._stateful:
            position["samplers"] = [copy.deepcopy(part.state_dict()) for part in self._stateful]
        return position

    def _can_jump(self, states: list[Any] | None) -> bool:
        return all(
            callable(getattr(part, "set_epoch", None)) or (states is not None and has_state(part))
            for part in self._others
        )


def _plain(batches: list[Any]) -> list[list[Any]] | None:
    """Return batches of indices as plain values; None if they have other types."""
    plain = [as_list(batch) for batch in batches]
    plain = [[i.item() if hasattr(i, "item") else i for i in batch] for batch in plain]
    types = {type(index) for batch in plain for index in batch}
    return plain if types <= {int, float, bool, str} else None


def _text(value: Any, depth: int = 3) -> str:
    """Return values as text; objects, whose text may be an address, are left out."""
    if isinstance(value, torch.Tensor):
        return _text(value.detach().cpu().tolist(), depth)
    if isinstance(value, np.ndarray):
        return _text(value.tolist(), depth)
    if type(value) in _VALUES:
        return repr(value)
    if isinstance(value, dict):
        value = [item for pair in value.items() for item in pair]
    if not isinstance(value, (list, tuple)):
        return ""
    if all(type(item) in _VALUES for item in value):
        return repr(value)
    is_small = depth > 0 and len(value) <= 1000
    return ",".join(_text(item, depth - 1) for item in value) if is_small else ""


def _hash(items: Iterable[Any]) -> str:
    return hashlib.blake2b(repr(list(items)).encode(), digest_size=16).hexdigest()


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
