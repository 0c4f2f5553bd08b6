"""What all training data has in common: it never ends, knows its position, names failed batches."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from determined.pytorch._data.errors import name_the_batch, sized
from determined.pytorch._data.workers import end_workers
from determined.pytorch._instrumentation.observer import UNOBSERVED, Observer

logger = logging.getLogger("determined.pytorch")


@dataclass(frozen=True)
class Origin:
    """Who reads the data, and from which batch on."""

    seed: int
    rank: int
    size: int
    start: int
    saved: dict[str, Any] | None
    observer: Observer = UNOBSERVED

    def share(self, length: int | None) -> int | None:
        """Return how many of `length` batches, dealt in turn, this rank gets."""
        return None if length is None else len(range(self.rank, length, self.size))

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
        epoch_length: Batches in one epoch of this rank; None if unknown.
        passes: If unknown, the passes over the data that ended before the last batch.
    """

    epoch_length: int | None
    passes: int | None = None

    def __init__(self, loader: Any, origin: Origin) -> None:
        self._loader = loader
        self._origin = origin
        self._delivered = origin.start
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
            name_the_batch(error, self._where(), self._loader)
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
            "size": self._origin.size,
            "num_workers": getattr(self._loader, "num_workers", 0),
            "batch_size": getattr(self._loader, "batch_size", None),
            "length": sized(getattr(self._loader, "dataset", None)),
        }

    @property
    def samples_per_batch(self) -> int | None:
        """Samples in a full batch of all ranks together; None if unknown."""
        batch_size = getattr(self._loader, "batch_size", None)
        if not isinstance(batch_size, int):
            return None
        samples = sized(getattr(self._loader, "dataset", None))
        whole = batch_size * self._origin.size
        return whole if samples is None else min(whole, samples)

    def _where(self) -> str:
        return f"The training data (build_training_data_loader), at batch {self._delivered},"
