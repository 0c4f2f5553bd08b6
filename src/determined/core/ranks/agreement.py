"""Steps that all ranks take together: one rank's error is an error on every rank, never a hang."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from determined.core._distributed import DistributedContext
from determined.errors import (
    CheckpointError,
    CheckpointNotFound,
    DistributedError,
    InvalidCheckpointException,
    NoDirectStorageAccess,
)

R = TypeVar("R")

# The others raise the same kind of error, so that one `except` works on all ranks.
_CARRIED: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        CheckpointNotFound,
        InvalidCheckpointException,
        NoDirectStorageAccess,
        CheckpointError,
        ValueError,
        RuntimeError,
    )
}


@dataclass(frozen=True)
class Outcome:
    value: Any = None
    rank: int = 0
    kind: str = ""
    message: str = ""

    @classmethod
    def of_error(cls, rank: int, error: BaseException) -> Outcome:
        kinds = [name for name, kind in _CARRIED.items() if isinstance(error, kind)]
        return cls(
            None, rank, (kinds or ["CheckpointError"])[0], f"{type(error).__name__}: {error}"
        )

    def raise_if_failed(self) -> None:
        if self.kind:
            raise _CARRIED[self.kind](f"Rank {self.rank} failed: {self.message}")


class Ranks:
    """A set of ranks that act in step: all of the job, or those of this machine."""

    def __init__(self, distributed: DistributedContext, *, local: bool = False) -> None:
        self._rank = distributed.rank
        self._is_first = (distributed.local_rank if local else distributed.rank) == 0
        self._allgather = distributed.allgather_local if local else distributed.allgather
        self._broadcast = distributed.broadcast_local if local else distributed.broadcast

    def on_all(self, action: Callable[[], R]) -> list[R]:
        """Run `action` on every rank; return all results in rank order, on every rank."""
        try:
            outcome = Outcome(action())
        except Exception as error:
            self._send_failure(error)
            raise
        outcomes: list[Outcome] = self._allgather(outcome)
        for other in outcomes:
            other.raise_if_failed()
        return [other.value for other in outcomes]

    def on_first(self, action: Callable[[], R]) -> R:
        """Run `action` on the first rank only; return its result on every rank."""
        if self._is_first:
            try:
                result = action()
            except Exception as error:
                with contextlib.suppress(DistributedError):
                    self._broadcast(Outcome.of_error(self._rank, error))
                raise
            self._broadcast(Outcome(result))
            return result
        outcome: Outcome = self._broadcast(None)
        outcome.raise_if_failed()
        received: R = outcome.value
        return received

    @contextlib.contextmanager
    def leaving_together(self) -> Iterator[None]:
        """All ranks wait for each other at the end of the block; if it failed on one, on all."""
        try:
            yield
        except GeneratorExit:
            raise
        except BaseException as error:
            self._send_failure(error)
            raise
        self.on_all(lambda: None)

    def _send_failure(self, error: BaseException) -> None:
        # If the others cannot be reached they have failed too; show this rank's own error.
        with contextlib.suppress(DistributedError):
            self._allgather(Outcome.of_error(self._rank, error))
