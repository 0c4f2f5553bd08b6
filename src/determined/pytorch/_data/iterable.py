"""Iterable datasets: one stream of batches without end, the same for any number of readers.

By default every rank and worker reads the whole stream and keeps its own batches, so the dataset
is shown a single worker (`get_worker_info()` says 0 of 1). A dataset with the attribute
`shards_itself = True`, or one that Hugging Face's `split_dataset_by_node` made, splits the data by
rank and worker on its own: each worker then batches what it is given.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import logging
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, get_worker_info

from determined.pytorch._data.errors import add_note, empty_error
from determined.pytorch._data.fetch import as_is, draw_base_seed
from determined.pytorch._data.part_states import PartStates, has_state
from determined.pytorch._data.seed import forked_rng, mix, seed_cpu
from determined.pytorch._data.workers import end_workers, start_worker

logger = logging.getLogger("determined.pytorch")

_END: Any = object()
_PROGRESS = 1000  # batches between two lines about reading again


@dataclass(frozen=True)
class Anchor:
    """A place in a stream from which reading can start again.

    Attributes:
        epoch: The pass over the dataset.
        batch: Number of the next batch there, counted from the start of the run.
        state: What the dataset's `state_dict` returned there; None at the start of a pass.
        generators: The states there of random generators that the dataset holds.
    """

    epoch: int = 0
    batch: int = 0
    state: Any = None
    generators: dict[str, Any] | None = None


class Shipped(NamedTuple):
    """A batch and a place before its end (flat, so that pinning leaves it be)."""

    batch: Any
    anchor_epoch: int
    anchor_batch: int
    anchor_state: Any
    anchor_generators: dict[str, Any] | None


@dataclass(frozen=True)
class StreamPlan:
    """What to read: tuples hold one entry, or one per worker if the dataset shards itself.

    A target is the number of the first batch to hand out; earlier ones are read and dropped. Those
    have the size that they had then: `batch_sizes` tells each size with the first batch of it.
    """

    anchors: tuple[Anchor, ...]
    targets: tuple[int, ...]
    batch_sizes: tuple[tuple[tuple[int, int | None], ...], ...]
    rank: int = 0
    size: int = 1
    shards_itself: bool = False
    first_worker: int = 0  # whose turn it is, if the dataset shards itself
    repeats: bool = True


class Stream(IterableDataset[Shipped]):
    """The batches that one worker hands out, in turn with the others."""

    def __init__(self, loader: Any, seed: int, plan: StreamPlan) -> None:
        self.user_dataset = loader.dataset
        self._drop_last = loader.drop_last
        self._collate = loader.collate_fn
        self._plan = plan
        self._seed = seed
        self._keeps_state = has_state(loader.dataset)
        self._generators = PartStates(only_generators=True, dataset=loader.dataset)
        self.shown_worker(0, 1)

    def shown_worker(self, worker: int, num_workers: int) -> tuple[int, int]:
        """Say which of the workers this copy serves; return (id, count) to show to the dataset."""
        plan = self._plan
        if plan.shards_itself:
            worker = (worker + plan.first_worker) % num_workers
            self._take(worker)
            self._turn, self._period = 0, 1
            self._reader_seed = mix(self._seed, plan.rank, worker)
            return worker, num_workers
        self._take(0)
        self._turn, self._period = worker * plan.size + plan.rank, num_workers * plan.size
        self._reader_seed = self._seed
        return 0, 1

    def _take(self, entry: int) -> None:
        plan = self._plan
        self._anchor, self._target = plan.anchors[entry], plan.targets[entry]
        self._batch_sizes = plan.batch_sizes[entry]

    def __iter__(self) -> Iterator[Shipped]:
        epoch, number, state = self._anchor.epoch, self._anchor.batch, self._anchor.state
        self._generators.load_state_dict(self._anchor.generators or {})
        if self._turn == 0 and self._target - number > 1:
            logger.info(
                "Rereading %d batches of %s to return to the position where training stopped.",
                self._target - number,
                type(self.user_dataset).__name__,
            )
        while True:
            first = number
            begin = Anchor(epoch, first, state, self._generators.state_dict())
            iterator = self._open(epoch, number, state)
            while (shipped := self._next(iterator, begin, number)) is not _END:
                number += 1
                if shipped is not None:
                    yield shipped
            if not self._plan.repeats:
                return
            if number == first and state is None:
                raise self._empty_error()
            epoch, state = epoch + 1, None

    def _open(self, epoch: int, number: int, state: Any) -> Iterator[Any]:
        """Start a pass over the dataset, or continue one."""
        dataset = self.user_dataset
        with self._seeded(number):
            if callable(getattr(dataset, "set_epoch", None)):
                dataset.set_epoch(epoch)
            if state is not None:
                dataset.load_state_dict(copy.deepcopy(state))
            return iter(dataset)

    def _next(self, iterator: Iterator[Any], begin: Anchor, number: int) -> Any:
        """Read one batch; return it if it is this copy's, None if not, `_END` after the last."""
        anchor = begin
        past_target = number - self._target
        is_mine = past_target >= 0 and past_target % self._period == self._turn
        if past_target < 0 and past_target % _PROGRESS == 0 and self._turn == 0:
            logger.info("%d batches to go.", -past_target)
        try:
            # Collated with the same generators: the next batch seeds them again for all copies.
            with self._seeded(number):
                if is_mine and self._keeps_state and number > begin.batch:
                    anchor = self._anchor_at(begin.epoch, number)
                samples = self._read(iterator, number)
                if samples is _END or not is_mine:
                    return _END if samples is _END else None
                batch = self._collate(samples)
                if self._keeps_state and anchor.state is None:  # the pass begins here
                    anchor = self._anchor_at(begin.epoch, number + 1)
                return Shipped(batch, anchor.epoch, anchor.batch, anchor.state, anchor.generators)
        except Exception as error:
            add_note(error, f"This was in batch {number} of the stream, in epoch {begin.epoch}.")
            raise

    def _anchor_at(self, epoch: int, number: int) -> Anchor:
        """Return where the dataset is now.

        Taken before a batch that is not the first of its pass: after the last one, a state may tell
        of the end of this pass or of the beginning of the next. A resumed run reads one batch again
        and then knows.
        """
        state = copy.deepcopy(self.user_dataset.state_dict())
        return Anchor(epoch, number, state, self._generators.state_dict())

    def _read(self, iterator: Iterator[Any], number: int) -> Any:
        size = next(size for first, size in reversed(self._batch_sizes) if first <= number)
        if size is None:
            return next(iterator, _END)
        samples = list(itertools.islice(iterator, size))
        is_short = len(samples) < size
        return _END if not samples or (is_short and self._drop_last) else samples

    def _seeded(self, number: int) -> contextlib.AbstractContextManager[None]:
        seed = mix(self._reader_seed, number)
        if get_worker_info() is None:
            return forked_rng(seed)
        seed_cpu(seed)
        return contextlib.nullcontext()

    def _empty_error(self) -> RuntimeError:
        name = type(self.user_dataset).__name__
        if self._plan.shards_itself and (info := get_worker_info()) is not None:
            name += f" in worker {info.id} of {info.num_workers} (it shards itself: use fewer?)"
        return empty_error(f"a whole pass over {name} was empty")


def read_stream(loader: Any, seed: int, plan: StreamPlan) -> Iterator[Shipped]:
    """Start reading the dataset of a package `DataLoader` as planned, with its workers."""
    stream = Stream(loader, seed, plan)
    options = loader.process_options()
    options.pop("in_order", None)  # the workers take turns
    if loader.num_workers == 0 and not loader.pin_memory:
        return iter(stream)
    return iter(
        TorchDataLoader(
            stream,
            batch_size=None,
            collate_fn=as_is,
            worker_init_fn=functools.partial(start_worker, loader.worker_init_fn),
            generator=torch.Generator().manual_seed(mix(seed, plan.rank)),
            **options,
        )
    )


class StreamLoader(TorchDataLoader[Any]):
    """Torch's loader over an iterable dataset, dealt to ranks and workers without repeats."""

    def __init__(self, loader: Any, *, repeat: bool, skip: int, size: int, rank: int) -> None:
        super().__init__(
            loader.dataset,
            batch_size=loader.batch_size,
            drop_last=loader.drop_last,
            collate_fn=loader.collate_fn,
            worker_init_fn=loader.worker_init_fn,
            generator=loader.generator,
            **loader.process_options(),
        )
        self._config = loader
        self._shard = rank, size
        self._plan = plan_from(loader, rank, size, skip, repeats=repeat)
        self._running: Callable[[], Iterator[Shipped] | None] = lambda: None

    def __iter__(self) -> Any:
        seed = draw_base_seed(self.generator)
        stream = read_stream(self._config, seed, self._plan)
        self._running = weakref.ref(stream)
        return (shipped.batch for shipped in stream)

    def close(self) -> None:
        """End the workers of the last pass, at once."""
        stream = self._running()
        if stream is not None:
            end_workers(stream)

    def __len__(self) -> int:
        rank, size = self._shard
        return len(range(rank, super().__len__(), size))


def plan_from(loader: Any, rank: int, size: int, start: int, *, repeats: bool = True) -> StreamPlan:
    """Plan to read from the very beginning and hand out from this rank's batch `start` on."""
    itself = shards_itself(loader.dataset)
    num_entries = max(1, loader.num_workers) if itself else 1
    return StreamPlan(
        (Anchor(),) * num_entries,
        worker_targets(start, num_entries) if itself else (start * size,),
        (((0, loader.batch_size),),) * num_entries,
        rank,
        size,
        shards_itself=itself,
        first_worker=start % num_entries,
        repeats=repeats,
    )


def worker_targets(start: int, num_workers: int) -> tuple[int, ...]:
    """Return how many of a rank's first `start` batches came from each worker, dealt in turn."""
    return tuple(len(range(worker, start, num_workers)) for worker in range(num_workers))


def shards_itself(dataset: Any) -> bool:
    """Return whether an iterable dataset splits its data by rank and worker on its own."""
    declared = getattr(dataset, "shards_itself", None)
    if declared is None:
        return getattr(dataset, "_distributed", None) is not None  # set by split_dataset_by_node
    return bool(declared)
