"""The order of any sampler, read ahead of training; a position holds what was read ahead."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Iterator
from typing import Any

from torch.utils.data import BatchSampler

from determined.pytorch._data.errors import empty_error, sized
from determined.pytorch._data.fetch import MAX_HELD_BACK, Indices, as_list
from determined.pytorch._data.order.nested_samplers import NestedSampler, UserGenerators, hash_of
from determined.pytorch._data.seed import PrivateRNG, mix

logger = logging.getLogger("determined.pytorch")

_CHUNK = 64  # batches read at once from a sampler


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
        self._sampler = NestedSampler(self._batching, generators)
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
        num_kept = (self._read_ahead + MAX_HELD_BACK) * size  # for positions before this batch
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
        if self._sampler.is_custom and num_unused <= len(self._recent):
            unused = _as_values(list(self._recent)[len(self._recent) - num_unused :])
            if unused is not None:
                position["ahead"] = self._position_ahead(ahead, unused)
        return position

    def _position_ahead(self, ahead: int, unused: list[list[Any]]) -> dict[str, Any]:
        """Return what lies between a position and where the sampler was read, and its state."""
        return {
            "batches": unused,
            "starts": [[first - ahead, start] for first, start in self._starts[1:]],
            "samplers": self._sampler.states(),
            "random": self._rng.state_dict(),
            "is_over": self._is_over,
            "check": list(self._check),
            "memory": self._sampler.memory(),
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
        if not self._sampler.can_jump(states):
            self._reread(epoch)
            states = own = None
        self._starts = [] if ahead is None else starts
        self._sampler.load_own_generators(own or {})
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
            begins = {**self._sampler.begin(epoch, states), "offset": skip}
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
        if chunk and self._sampler.is_custom:
            self._check = len(chunk), hash_of(chunk)
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
        if hash_of(given) != known or self._sampler.memory() != ahead["memory"]:
            self._warn_of_reaction(ahead["read_ahead"])
        self._rng.load_state_dict(ahead["random"])
        self._sampler.load_states(ahead["samplers"])

    def _warn_of_reaction(self, read_ahead: int) -> None:
        """Say what keeps a sampler from being exact that depends on more than its own past."""
        name = self._sampler.name
        if not self._sampler.has_state:
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


def _as_values(batches: list[Any]) -> list[list[Any]] | None:
    """Return batches of indices as values that any file may hold; None if they have other types."""
    lists = [as_list(batch) for batch in batches]
    values = [[i.item() if hasattr(i, "item") else i for i in batch] for batch in lists]
    types = {type(index) for batch in values for index in batch}
    return values if types <= {int, float, bool, str} else None
