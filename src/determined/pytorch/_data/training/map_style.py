"""Training batches of a map-style dataset, whose samples have indices."""

from __future__ import annotations

import functools
import itertools
import logging
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from determined.pytorch._data.batches import DataLoader
from determined.pytorch._data.errors import describe, empty_error, sized
from determined.pytorch._data.fetch import (
    MAX_HELD_BACK,
    BatchFetcher,
    Indices,
    RememberedBatches,
    WithStates,
    as_is,
    as_list,
)
from determined.pytorch._data.order.index_order import Order, index_order
from determined.pytorch._data.order.nested_samplers import UserGenerators
from determined.pytorch._data.order.sampler_order import SamplerOrder
from determined.pytorch._data.part_states import PartStates
from determined.pytorch._data.seed import mix
from determined.pytorch._data.training.training_data import Origin, TrainingData
from determined.pytorch._data.workers import start_worker

logger = logging.getLogger("determined.pytorch")


class MapStyleData(TrainingData):
    """Batches of a dataset with indices."""

    def __init__(self, loader: DataLoader, origin: Origin) -> None:
        super().__init__(loader, origin)
        length = sized(loader.batch_sampler)
        if length == 0:
            raise empty_error(
                f"{describe(loader.dataset)}, batch_size={loader.batch_size}, "
                f"drop_last={loader.drop_last}"
            )
        self.epoch_length = origin.share(length)
        self._states = PartStates(dataset=loader.dataset, collate_fn=loader.collate_fn)
        # What the dataset remembers, here or in each worker: they take turns.
        self._remembered: list[dict[str, Any] | None] = [None] * max(1, loader.num_workers)
        self._recent: deque[tuple[int, dict[str, Any]]] = deque()
        self._order, self._first = self._order_at_start()
        self._batches = self._fetched()

    def __next__(self) -> Any:
        batch = super().__next__()
        if type(batch) is not WithStates:
            return batch
        self._recent.append((self._delivered - 1, batch.states))
        if len(self._recent) > MAX_HELD_BACK:
            batch_idx, states = self._recent.popleft()
            self._remembered[batch_idx % len(self._remembered)] = states
        return batch.batch

    def state_dict(self, consumed: int) -> dict[str, Any]:
        ahead = (consumed - self._origin.start) * self._origin.size
        return {
            **self._state(self._kind, consumed),
            "global_batches": self._first + ahead,
            "generators": self._generators.state_dict(),
            "dataset": self._remembered_after(consumed),
            **self._order.position(ahead),
        }

    def _remembered_after(self, consumed: int) -> list[dict[str, Any] | None]:
        if self._loader.num_workers == 0:
            return [self._states.state_dict()]
        remembered = list(self._remembered)
        for batch_idx, states in self._recent:
            if batch_idx < consumed:
                remembered[batch_idx % len(remembered)] = states
        return remembered

    def _order_at_start(self) -> tuple[Order, int]:
        """Return the order at its start, and how many global batches came before."""
        origin = self._origin
        before = origin.start * origin.size
        self._generators = UserGenerators(self._loader)
        plain = index_order(self._loader, origin.seed, self._generators)
        order = plain or SamplerOrder(self._loader, origin.seed, self._generators)
        self._kind = order.kind
        saved = origin.saved_as(order.kind)
        if saved is None:
            return order.starting_after(before), before
        self._compare(saved)
        self._generators.load_state_dict(saved["generators"])
        self._remember(saved)
        return order.starting_at(saved), saved["global_batches"]

    def _remember(self, saved: dict[str, Any]) -> None:
        """Bring the dataset to its saved state; that of workers waits until they start."""
        remembered: list[dict[str, Any] | None] = saved.get("dataset") or []
        if not any(remembered):
            return
        then = saved["num_workers"], saved["size"]
        now = self._loader.num_workers, self._origin.size
        if then != now:
            logger.warning(
                "%s and its collate function remember what they did, each worker and slot on its "
                "own: with %d workers and %d slots instead of %d and %d they start afresh.",
                describe(self._loader.dataset),
                *now,
                *then,
            )
        elif self._loader.num_workers:
            self._remembered = list(remembered)
        else:
            self._states.load_state_dict(remembered[0] or {})

    def _compare(self, saved: dict[str, Any]) -> None:
        """Say what differs from the run that saved this position."""
        now = self._state(self._kind, self._origin.start)
        if saved["size"] != now["size"]:
            logger.info(
                "Data saved with %d slots continues at the same batch with %d.",
                saved["size"],
                now["size"],
            )
            self._compare_ends_of_epochs(saved)
        if saved["batch_size"] != now["batch_size"]:
            logger.info(
                "The batch size was %s and is %s: data continues at the same record.",
                saved["batch_size"],
                now["batch_size"],
            )
        if saved["length"] != now["length"]:
            logger.warning(
                "The dataset had %s samples when the checkpoint was saved and has %s now: "
                "epoch %d has a different order, so some of its samples may be repeated or "
                "skipped.",
                saved["length"],
                now["length"],
                saved["epoch"],
            )

    def _compare_ends_of_epochs(self, saved: dict[str, Any]) -> None:
        """Say whether global batches hold other records than with the former number of ranks.

        They do from the end of an epoch on that does not come out even: then some ranks begin the
        next one while others end this one.
        """
        then, now, size = saved["batch_size"], self._loader.batch_size, self._origin.size
        records = sized(self._loader.sampler)
        if then is None or now is None or records is None or then * saved["size"] != now * size:
            return
        is_dropped = self._loader.drop_last
        used = [records - records % batch if is_dropped else records for batch in (then, now)]
        if used[0] != used[1] or used[0] % (now * size):
            logger.warning(
                "An epoch of %d records does not consist of whole global batches of %d: at the "
                "end of each epoch, batches hold other records than with %d slots.",
                records,
                now * size,
                saved["size"],
            )

    def _fetched(self) -> Iterator[Any]:
        loader, origin = self._loader, self._origin
        fetch = BatchFetcher(loader.dataset, loader.collate_fn)
        indices = origin.observer.indices(
            self._order.batches(origin.rank, origin.size, as_lists=fetch.reads_samples)
        )
        if loader.num_workers == 0 and not loader.pin_memory:
            return map(fetch, indices)
        options = loader.process_options()
        options.pop("in_order", None)
        seed = mix(origin.seed, origin.rank, origin.start)
        first_worker = origin.start % len(self._remembered)
        return iter(
            torch.utils.data.DataLoader(
                RememberedBatches(fetch, first_worker, self._remembered),
                batch_sampler=self._seeded(indices),  # type: ignore[arg-type]  # our dataset knows these
                collate_fn=as_is,
                worker_init_fn=functools.partial(start_worker, loader.worker_init_fn),
                generator=torch.Generator().manual_seed(seed),
                **options,
            )
        )

    def _seeded(self, batches: Iterator[Indices]) -> Iterator[tuple[int | None, list[Any]]]:
        """Add the seeds under which workers fetch: of the global batch, whatever its rank."""
        origin, has_workers = self._origin, self._loader.num_workers > 0
        numbers = itertools.count(self._first + origin.rank, origin.size)
        for number, batch in zip(numbers, batches, strict=False):
            seed = mix(origin.seed, 0, number) if has_workers else None
            yield seed, as_list(batch)
