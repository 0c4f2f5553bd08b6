"""Training batches of any object that can be iterated."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Generator, Iterator
from typing import Any

from determined.pytorch._data.endless import Origin, TrainingData
from determined.pytorch._data.fetch import end_workers, has_state, sized
from determined.pytorch._data.order import empty_error
from determined.pytorch._data.seed import PrivateRNG, mix

logger = logging.getLogger("determined.pytorch")

_END: Any = object()


class OtherData(TrainingData):
    """Batches of any object that can be iterated, as it gives them; started again at its end.

    Each pass begins under generators seeded for its number, so that a torch loader shuffles alike
    on all ranks and after a resume.
    """

    def __init__(self, loader: Any, origin: Origin) -> None:
        super().__init__(loader, origin)
        self.epoch_length = sized(loader)
        if self.epoch_length == 0:
            raise empty_error(f"{type(loader).__name__} has length 0")
        saved = origin.saved_as("other")
        epoch, batch = 0, origin.start
        if saved is not None:
            epoch, batch = saved["epoch"], saved["batch"]
        elif self.epoch_length:
            epoch, batch = divmod(batch, self.epoch_length)
        self._passes = [(origin.start - batch, epoch)]  # first batch and number of each
        if saved is not None and "loader" in saved and has_state(loader):
            loader.load_state_dict(saved["loader"])
            batch = 0
        elif batch:
            logger.info(
                "Rereading %d batches to return to the position where training stopped.", batch
            )
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
        may_be_empty = skip == 0 and self._passes[0][0] < self._origin.start
        while True:
            with PrivateRNG(mix(self._origin.seed, epoch)):
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
