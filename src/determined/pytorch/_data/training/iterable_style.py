"""Training batches of an iterable-style dataset, which has no indices."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import Any

from determined.pytorch._data.batches import DataLoader
from determined.pytorch._data.errors import describe, empty_error, sized
from determined.pytorch._data.fetch import MAX_HELD_BACK
from determined.pytorch._data.iterable import Anchor, StreamPlan, plan_from, read_stream
from determined.pytorch._data.part_states import has_state
from determined.pytorch._data.training.training_data import Origin, TrainingData

logger = logging.getLogger("determined.pytorch")


class IterableStyleData(TrainingData):
    """Batches of an iterable dataset."""

    def __init__(self, loader: DataLoader, origin: Origin) -> None:
        super().__init__(loader, origin)
        length = sized(loader)
        if length == 0:
            raise empty_error(f"{describe(loader.dataset)}, drop_last={loader.drop_last}")
        plan = plan_from(loader, origin.rank, origin.size, origin.start)
        self._kind = "sharded stream" if plan.shards_itself else "stream"
        self._first = origin.start * origin.size
        if (saved := origin.saved_as(self._kind)) is not None:
            plan = self._continued(plan, saved)
        self._batch_sizes = plan.batch_sizes
        self._anchors = list(plan.anchors)  # of each worker, if the dataset shards itself
        self._recent: deque[tuple[int, Anchor]] = deque()
        self.epoch_length = None if plan.shards_itself else origin.share(length)
        self._batches = read_stream(loader, origin.seed, plan)

    def __next__(self) -> Any:
        batch, *anchor = super().__next__()
        self._recent.append((self._delivered - 1, Anchor(*anchor)))
        if self.epoch_length is None:
            self.passes = anchor[0]
        if len(self._recent) > MAX_HELD_BACK:
            self._settle(self._anchors, *self._recent.popleft())
        return batch

    def state_dict(self, consumed: int) -> dict[str, Any]:
        if consumed < self._delivered - MAX_HELD_BACK:
            raise ValueError(
                f"`consumed` must be one of the last {MAX_HELD_BACK} positions of a stream, up to "
                f"{self._delivered}, got {consumed}."
            )
        anchors = list(self._anchors)
        for batch_idx, anchor in self._recent:
            if batch_idx < consumed:
                self._settle(anchors, batch_idx, anchor)
        ahead = (consumed - self._origin.start) * self._origin.size
        return {
            **self._state(self._kind, consumed),
            "global_batches": self._first + ahead,
            "rank": self._origin.rank,
            "batch_sizes": [list(sizes) for sizes in self._batch_sizes],
            "anchors": [vars(anchor) for anchor in anchors],
        }

    @staticmethod
    def _settle(anchors: list[Anchor], batch_idx: int, anchor: Anchor) -> None:
        anchors[batch_idx % len(anchors)] = anchor  # workers take turns

    def _continued(self, plan: StreamPlan, saved: dict[str, Any]) -> StreamPlan:
        anchors = tuple(Anchor(**anchor) for anchor in saved["anchors"])
        self._first = saved["global_batches"]
        if plan.shards_itself:
            self._check_shards(len(plan.anchors), saved)
        else:
            plan = replace(plan, targets=(self._first,))
        if anchors[0].state is not None and not has_state(self._loader.dataset):
            logger.warning(
                "%s had load_state_dict when the checkpoint was saved but not now: it is read "
                "from the beginning.",
                type(self._loader.dataset).__name__,
            )
            anchors = plan.anchors
        batch_sizes = tuple(
            (*map(tuple, sizes), (target, self._loader.batch_size))
            if sizes[-1][1] != self._loader.batch_size
            else tuple(map(tuple, sizes))
            for sizes, target in zip(saved["batch_sizes"], plan.targets, strict=True)
        )
        return replace(plan, anchors=anchors, batch_sizes=batch_sizes)

    def _check_shards(self, num_workers: int, saved: dict[str, Any]) -> None:
        then = (len(saved["anchors"]), saved["size"], saved["rank"])
        now = (num_workers, self._origin.size, self._origin.rank)
        if then != now:
            raise RuntimeError(
                f"{type(self._loader.dataset).__name__} shards itself, so its position belongs to "
                "one worker of one slot: saved with {} workers, {} slots, by rank {}; opened with "
                "{} workers, {} slots, by rank {}. Resume with the same numbers.".format(
                    *then, *now
                )
            )
