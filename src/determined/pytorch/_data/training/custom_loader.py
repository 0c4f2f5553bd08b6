"""Training batches of any object that can be iterated, such as a loader of the user's own."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Generator, Iterator
from typing import Any

from determined.pytorch._data.errors import empty_error, sized
from determined.pytorch._data.part_states import PartStates, has_state
from determined.pytorch._data.seed import PrivateRNG, forked_rng, mix
from determined.pytorch._data.training.training_data import Origin, TrainingData
from determined.pytorch._data.workers import end_pass

logger = logging.getLogger("determined.pytorch")

_END: Any = object()
_OWN_POSITION = ("loader", "random", "generators")


class CustomLoaderData(TrainingData):
    """Batches of any object that can be iterated, as it gives them; started again at its end.

    A pass draws from generators of its own, seeded for its number: so a torch loader shuffles alike
    on all ranks, and what is read again after a resume is what it was.
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
        self._rng = PrivateRNG(mix(origin.seed, epoch))
        self._states = PartStates(only_generators=has_state(loader), loader=loader)
        self._states.load_state_dict((saved or {}).get("parts", {}))
        # First batch and number of each pass, and what the loader's parts remembered before it.
        self._passes = [(origin.start - batch, epoch, self._states.state_dict())]
        drawn = None
        if saved is not None and "loader" in saved and has_state(loader):
            loader.load_state_dict(saved["loader"])
            batch, drawn = 0, saved
            if getattr(loader, "num_workers", 0):
                logger.warning(
                    "%s restores its own position, but not the random numbers of its workers: what "
                    "they draw differs from an unbroken run. determined.pytorch.DataLoader "
                    "restores both.",
                    type(loader).__name__,
                )
        elif batch:
            logger.info(
                "Rereading %d batches to return to the position where training stopped.", batch
            )
        self._batches = self._read(epoch, batch, drawn)

    def state_dict(self, consumed: int) -> dict[str, Any]:
        while len(self._passes) > 1 and self._passes[1][0] <= consumed:
            del self._passes[0]
        first, epoch, parts = self._passes[0]
        state = {
            **self._state("other", consumed),
            "epoch": epoch,
            "batch": consumed - first,
            "parts": parts,
        }
        # A loader only tells where it is now: no use if the consumer holds a batch back.
        if has_state(self._loader) and consumed == self._delivered:
            state.update(self._own_position())
        return state

    def _own_position(self) -> dict[str, Any]:
        """Return the loader's own state, and that of the generators that it draws from."""
        if self._delivered == self._origin.start:  # asked now, it might begin to read
            saved = self._origin.saved or {}
            return {name: saved[name] for name in _OWN_POSITION if name in saved}
        with forked_rng(0):
            state = self._loader.state_dict()
        values = state, self._rng.state_dict(), self._states.state_dict()
        return dict(zip(_OWN_POSITION, values, strict=True))

    def close(self) -> None:
        batches = self._batches
        super().close()
        if isinstance(batches, Generator):
            batches.close()

    def _read(self, epoch: int, skip: int, drawn: dict[str, Any] | None) -> Iterator[Any]:
        may_be_empty = skip == 0 and self._passes[0][0] < self._origin.start
        while True:
            rng = self._rng = PrivateRNG(mix(self._origin.seed, epoch))
            with rng:
                iterator = self._opened()
            if drawn is not None:  # the loader is in place, but it may have drawn to get there
                rng.load_state_dict(drawn.get("random", {}))
                self._states.load_state_dict(drawn.get("generators", {}))
            with rng:
                skipped = sum(1 for _ in itertools.islice(iterator, skip))
            is_empty = skipped == 0 and not may_be_empty
            try:
                while (batch := self._next(rng, iterator)) is not _END:
                    is_empty = False
                    yield batch
            finally:
                end_pass(self._loader, iterator)
            if is_empty:
                raise empty_error(
                    "it ended and did not start again; return a loader, not an iterator"
                    if self._delivered
                    else f"{type(self._loader).__name__} is empty"
                )
            epoch, skip, may_be_empty, drawn = epoch + 1, skip - skipped, False, None
            self._passes.append((self._delivered - skip, epoch, self._states.state_dict()))

    def _opened(self) -> Iterator[Any]:
        try:
            return iter(self._loader)
        except StopIteration:  # of torchdata's loader, in the state of the end of a stream
            self._loader.next_iter_state = None  # which it would go back to again
            return iter(())

    @staticmethod
    def _next(rng: PrivateRNG, iterator: Iterator[Any]) -> Any:
        with rng:
            return next(iterator, _END)
