"""Endless training batches of one rank, opened at a position and able to say where they are.

`_order` says which samples make a batch, `_fetch` gets them, `_iterable` reads streams; this file
joins them to a position. A position is global: any rank's saved state opens any world size.
"""

from __future__ import annotations

import functools
import itertools
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import IterableDataset

from determined.pytorch._data import DataLoader
from determined.pytorch._fetch import (
    BatchFetcher,
    Indices,
    SeededBatches,
    add_note,
    as_is,
    describe,
    draw_base_seed,
    end_workers,
    has_state,
    sized,
    start_worker,
)
from determined.pytorch._iterable import Anchor, StreamPlan, open_plan, read_stream
from determined.pytorch._order import Order, SamplerOrder, empty_error, index_order
from determined.pytorch._seed import PrivateRNG, mix

logger = logging.getLogger("determined.pytorch")

_END: Any = object()
_HISTORY = 16  # batches that a consumer may hold back when it asks for the state


@dataclass(frozen=True)
class Opening:
    """Who opens the data, and where."""

    seed: int
    rank: int
    size: int
    start: int
    saved: dict[str, Any] | None

    def saved_as(self, kind: str) -> dict[str, Any] | None:
        """Return the saved position if it is of this kind and for this batch."""
        if self.saved is None:
            return None
        found = self.saved.get("kind"), self.saved.get("batches")
        if found == (kind, self.start):
            return self.saved
        logger.warning(
            "The saved data position (%s, batch %s) does not fit the loader (%s, batch %d): "
            "counting batches instead, so records may repeat.",
            *found,
            kind,
            self.start,
        )
        return None


class TrainingData(ABC):
    """Batches without end, from batch `start` of the trial on.

    Attributes:
        epoch_length: Batches in one epoch of this rank, None if nobody knows.
    """

    epoch_length: int | None

    def __init__(self, loader: Any, opening: Opening) -> None:
        self._loader = loader
        self._opening = opening
        self._delivered = opening.start
        self._batches: Iterator[Any] = iter(())
        self._is_closed = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            if self._is_closed:
                raise
            raise RuntimeError(
                f"{self._where()} ended. Does the dataset raise StopIteration?"
            ) from None
        except Exception as error:
            self._explain(error)
            raise
        self._delivered += 1
        return batch

    @abstractmethod
    def state_dict(self, consumed: int) -> dict[str, Any]:
        """Return the position after `consumed` batches of this rank since the trial's start."""

    def close(self) -> None:
        """End worker processes, at once. Closing again does nothing."""
        self._is_closed = True
        batches, self._batches = self._batches, iter(())
        end_workers(batches)

    def _state(self, kind: str, consumed: int) -> dict[str, Any]:
        """Return what every kind of position records."""
        return {
            "version": 1,
            "kind": kind,
            "batches": consumed,
            "size": self._opening.size,
            "batch_size": getattr(self._loader, "batch_size", None),
            "length": sized(getattr(self._loader, "dataset", None)),
        }

    def _where(self) -> str:
        return f"The training data (build_training_data_loader), at batch {self._delivered},"

    def _explain(self, error: Exception) -> None:
        text = str(error)
        if isinstance(error, RuntimeError) and text.startswith("DataLoader timed out"):
            raise RuntimeError(
                f"{self._where()} got nothing from the loader's workers for "
                f"{self._loader.timeout} seconds (`timeout`): one hangs, or needs longer."
            ) from error
        if isinstance(error, RuntimeError) and text.startswith("DataLoader worker (pid"):
            raise RuntimeError(
                f"{self._where()} lost a worker process of the loader: {text.splitlines()[0]} "
                "Memory is the usual reason; num_workers=0 shows errors of the dataset."
            ) from error
        add_note(error, f"{self._where()} could not be loaded.")


def open_training_data(
    loader: Any, *, seed: int, rank: int, size: int, start: int, saved: dict[str, Any] | None
) -> TrainingData:
    """Open a loader for training at this rank's batch `start`.

    Args:
        loader: A package `DataLoader`, or any object that can be iterated.
        seed: The trial's seed: the same on all ranks.
        rank: This rank.
        size: Number of ranks.
        start: Batches that each rank has trained.
        saved: What `state_dict(start)` returned, on any rank and at any world size. An iterable
            dataset that shards itself needs its own rank's.
    """
    opening = Opening(seed, rank, size, start, saved)
    if not isinstance(loader, DataLoader):
        return OtherData(loader, opening)
    if not loader.extras.get("in_order", True):
        logger.warning("`in_order=False` does not apply to training: resuming needs an order.")
    if loader.generator is None:
        # Torch's loader does so at each `iter()`: models see the same draws as in a plain loop.
        draw_base_seed(None)
    if isinstance(loader.dataset, IterableDataset):
        return StreamData(loader, opening)
    return MapData(loader, opening)


class MapData(TrainingData):
    """Batches of a dataset with indices."""

    def __init__(self, loader: DataLoader, opening: Opening) -> None:
        super().__init__(loader, opening)
        length = sized(loader.batch_sampler)
        if length == 0:
            raise empty_error(
                f"{describe(loader.dataset)}, batch_size={loader.batch_size}, "
                f"drop_last={loader.drop_last}"
            )
        self.epoch_length = _share(length, opening)
        self._order, self._first = self._opened_order(length)
        self._batches = self._fetched()

    def state_dict(self, consumed: int) -> dict[str, Any]:
        ahead = (consumed - self._opening.start) * self._opening.size
        state = self._state(self._kind, consumed)
        return {**state, "global_batches": self._first + ahead, **self._order.position(ahead)}

    def _opened_order(self, length: int | None) -> tuple[Order, int]:
        """Return the order at its opening position, and how many global batches came before."""
        opening = self._opening
        before = opening.start * opening.size
        plain = index_order(self._loader, opening.seed)
        self._kind = "sampler" if plain is None else "index"
        saved = opening.saved_as(self._kind)
        if saved is not None:
            self._compare(saved)
            before = saved["global_batches"]
        if plain is not None:
            if saved is None:
                return plain.moved(before), before
            return replace(plain, epoch=saved["epoch"], record=saved["record"]), before
        order = SamplerOrder(self._loader, opening.seed)
        if saved is not None:
            keys = saved.keys() & {"epoch", "batch", "samplers"}
            order.open_at({key: saved[key] for key in keys})
        elif before:
            epoch, batch = divmod(before, length) if length else (0, before)
            order.open_at({"epoch": epoch, "batch": batch})
        return order, before

    def _compare(self, saved: dict[str, Any]) -> None:
        """Say what differs from the run that saved this position."""
        now = self._state(self._kind, self._opening.start)
        if saved["size"] != now["size"]:
            logger.info(
                "Data saved with %d slots continues at the same batch with %d.",
                saved["size"],
                now["size"],
            )
        if saved["batch_size"] != now["batch_size"]:
            is_exact = self._kind == "index"
            logger.log(
                logging.INFO if is_exact else logging.WARNING,
                "The batch size was %s and is %s: data continues at the same %s.",
                saved["batch_size"],
                now["batch_size"],
                "record" if is_exact else "batch, so records may repeat or be left out",
            )
        if saved["length"] != now["length"]:
            logger.warning(
                "The dataset had %s samples when the checkpoint was saved and has %s now: "
                "epoch %d has another order, so some of its samples may repeat or be left out.",
                saved["length"],
                now["length"],
                saved["epoch"],
            )

    def _fetched(self) -> Iterator[Any]:
        loader, opening = self._loader, self._opening
        indices = self._order.batches(opening.rank, opening.size)
        fetch = BatchFetcher(loader.dataset, loader.collate_fn)
        if loader.num_workers == 0 and not loader.pin_memory:
            return map(fetch, indices)
        first = self._first + opening.rank
        numbered = ((first + i * opening.size, _as_list(batch)) for i, batch in enumerate(indices))
        options = loader.process_options()
        options.pop("in_order", None)
        seed = mix(opening.seed, opening.rank, opening.start)
        return iter(
            torch.utils.data.DataLoader(
                SeededBatches(fetch, opening.seed if loader.num_workers else None),
                batch_sampler=numbered,  # type: ignore[arg-type]  # our dataset knows these
                collate_fn=as_is,
                worker_init_fn=functools.partial(start_worker, loader.worker_init_fn),
                generator=torch.Generator().manual_seed(seed),
                **options,
            )
        )


class StreamData(TrainingData):
    """Batches of an iterable dataset."""

    def __init__(self, loader: DataLoader, opening: Opening) -> None:
        super().__init__(loader, opening)
        plan = open_plan(loader, opening.rank, opening.size, opening.start)
        self._kind = "sharded stream" if plan.shards_itself else "stream"
        self._first = opening.start * opening.size
        if (saved := opening.saved_as(self._kind)) is not None:
            plan = self._continued(plan, saved)
        self._anchors = list(plan.anchors)  # of each worker, if the dataset shards itself
        self._recent: deque[tuple[int, Anchor]] = deque()
        self.epoch_length = None if plan.shards_itself else _share(sized(loader), opening)
        self._batches = read_stream(loader, opening.seed, plan)

    def __next__(self) -> Any:
        batch, *anchor = super().__next__()
        self._recent.append((self._delivered - 1, Anchor(*anchor)))
        if len(self._recent) > _HISTORY:
            self._settle(self._anchors, *self._recent.popleft())
        return batch

    def state_dict(self, consumed: int) -> dict[str, Any]:
        if consumed < self._delivered - _HISTORY:
            raise ValueError(
                f"`consumed` must be one of the last {_HISTORY} positions of a stream, up to "
                f"{self._delivered}, got {consumed}."
            )
        anchors = list(self._anchors)
        for batch_idx, anchor in self._recent:
            if batch_idx < consumed:
                self._settle(anchors, batch_idx, anchor)
        ahead = (consumed - self._opening.start) * self._opening.size
        return {
            **self._state(self._kind, consumed),
            "global_batches": self._first + ahead,
            "rank": self._opening.rank,
            "anchors": [{"epoch": a.epoch, "batch": a.batch, "state": a.state} for a in anchors],
        }

    @staticmethod
    def _settle(anchors: list[Anchor], batch_idx: int, anchor: Anchor) -> None:
        anchors[batch_idx % len(anchors)] = anchor  # workers take turns

    def _continued(self, plan: StreamPlan, saved: dict[str, Any]) -> StreamPlan:
        anchors = tuple(Anchor(**anchor) for anchor in saved["anchors"])
        self._first = saved["global_batches"]
        if plan.shards_itself:
            self._check_shards(len(plan.anchors), saved)
            return replace(plan, anchors=anchors)
        can_load = has_state(self._loader.dataset)
        is_regrouped = saved["batch_size"] != self._loader.batch_size
        if (anchors[0].state is not None and not can_load) or (
            anchors[0].state is None and is_regrouped
        ):
            logger.warning(
                "The saved position of the stream cannot be used (batch size %s then, %s now; "
                "%s now): it is read from its beginning, counting batches.",
                saved["batch_size"],
                self._loader.batch_size,
                "with load_state_dict" if can_load else "no load_state_dict",
            )
            anchors = plan.anchors
        return replace(plan, anchors=anchors, targets=(self._first,))

    def _check_shards(self, num_workers: int, saved: dict[str, Any]) -> None:
        then = (len(saved["anchors"]), saved["size"], saved["rank"])
        now = (num_workers, self._opening.size, self._opening.rank)
        if then != now:
            raise RuntimeError(
                f"{type(self._loader.dataset).__name__} shards itself, so its position belongs to "
                "one worker of one slot: saved with {} workers, {} slots, by rank {}; opened with "
                "{} workers, {} slots, by rank {}. Resume with the same numbers.".format(
                    *then, *now
                )
            )


class OtherData(TrainingData):
    """Batches of any object that can be iterated, as it gives them; started again at its end.

    Each pass begins under generators seeded for its number, so that a torch loader shuffles alike
    on all ranks and after a resume.
    """

    def __init__(self, loader: Any, opening: Opening) -> None:
        super().__init__(loader, opening)
        self.epoch_length = sized(loader)
        if self.epoch_length == 0:
            raise empty_error(f"{type(loader).__name__} has length 0")
        saved = opening.saved_as("other")
        epoch, batch = 0, opening.start
        if saved is not None:
            epoch, batch = saved["epoch"], saved["batch"]
        elif self.epoch_length:
            epoch, batch = divmod(batch, self.epoch_length)
        self._passes = [(opening.start - batch, epoch)]  # first batch and number of each
        if saved is not None and "loader" in saved and has_state(loader):
            loader.load_state_dict(saved["loader"])
            batch = 0
        elif batch:
            logger.info("Reading %d batches again to get back to where training stopped.", batch)
        self._batches = self._read(epoch, batch)

    def state_dict(self, consumed: int) -> dict[str, Any]:
        while len(self._passes) > 1 and self._passes[1][0] <= consumed:
            del self._passes[0]
        first, epoch = self._passes[0]
        state = {**self._state("other", consumed), "epoch": epoch, "batch": consumed - first}
        # A loader only tells where it is now: no use if the consumer holds a batch back.
        if has_state(self._loader) and consumed == self._delivered:
            state["loader"] = self._loader.state_dict()
        return state

    def close(self) -> None:
        batches = self._batches
        super().close()
        if isinstance(batches, Generator):
            batches.close()

    def _read(self, epoch: int, skip: int) -> Iterator[Any]:
        may_be_empty = skip == 0 and self._passes[0][0] < self._opening.start
        while True:
            with PrivateRNG(mix(self._opening.seed, epoch)):
                iterator = iter(self._loader)
                skipped = sum(1 for _ in itertools.islice(iterator, skip))
                batch = next(iterator, _END)  # torch draws the order of a pass with its first batch
            if skipped == 0 and batch is _END and not may_be_empty:
                raise empty_error(
                    "it ended and did not start again; return a loader, not an iterator"
                    if self._delivered
                    else f"{type(self._loader).__name__} is empty"
                )
            try:
                while batch is not _END:
                    yield batch
                    batch = next(iterator, _END)
            finally:
                if not getattr(self._loader, "persistent_workers", False):
                    end_workers(iterator)
            epoch, skip, may_be_empty = epoch + 1, skip - skipped, False
            self._passes.append((self._delivered - skip, epoch))


def _share(length: int | None, opening: Opening) -> int | None:
    """Return how many of `length` batches, dealt in turn, one rank gets."""
    return None if length is None else len(range(opening.rank, length, opening.size))


def _as_list(indices: Indices) -> list[Any]:
    """Return indices in a form that is cheap to send to a worker process."""
    return indices.tolist() if isinstance(indices, torch.Tensor) else list(indices)
