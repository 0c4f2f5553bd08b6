"""What the loop asks of work that runs outside of it."""

from __future__ import annotations

from typing import Protocol

from determined.platform.supervisor.decisions import Decisions
from determined.store import Transaction


class Worker(Protocol):
    """Work that takes longer than a tick may, one piece after another.

    What is due is in the store, so an interrupted piece starts over. A result is recorded by the
    next tick; a worker sets the loop's event when it has one.
    """

    @property
    def is_busy(self) -> bool:
        """Whether the supervisor must not exit yet, though no experiment needs it."""

    @property
    def has_results(self) -> bool:
        """Whether there is something to record."""

    def load(self, transaction: Transaction) -> None:
        """Read what is due, at the end of every tick that decides."""

    def record(self, decisions: Decisions) -> None:
        """Record the results, and forget them."""

    def act(self) -> None:
        """Start the next piece, if none is being worked on."""

    async def close(self) -> None:
        """Wait until nothing runs."""
