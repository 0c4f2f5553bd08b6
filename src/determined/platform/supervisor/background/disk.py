"""Watches `disk_limit`: first what policies do not keep is deleted, then runs are warned.

The home is measured while runs are live, outside the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time

from determined.errors import DeterminedError
from determined.platform.homes.disk_limit import beyond_limit, find_limit, used_bytes
from determined.platform.supervisor.decisions import Decisions
from determined.platform.supervisor.live_state import LiveState
from determined.store import Transaction

logger = logging.getLogger("determined.supervisor")

_PAUSE_SECONDS = 10.0
_SHARE_OF_TIME = 20  # measuring takes at most this part of the time


class DiskWatch:
    """Compares what the home takes with its limit, if it has one."""

    def __init__(self, live_state: LiveState, changed: asyncio.Event) -> None:
        self._live_state = live_state
        self._changed = changed
        self._next = 0.0
        self._was_over = False
        self._task: asyncio.Task[None] | None = None
        self._is_collection_due = False

    @property
    def is_busy(self) -> bool:
        return False  # without runs nothing grows

    @property
    def has_results(self) -> bool:
        """Whether policies are to be applied now, though experiments have not ended."""
        return self._is_collection_due

    def load(self, transaction: Transaction) -> None:
        """Nothing is due by the store: time decides when to measure."""

    def record(self, decisions: Decisions) -> None:
        """Mark all experiments that have a policy, for collection."""
        if self._is_collection_due:
            self._is_collection_due = False
            decisions.changes.collect_garbage_of(decisions.transaction.with_policies())

    def act(self) -> None:
        """Measure from time to time."""
        if self._task is None and self._live_state.runs and time.monotonic() >= self._next:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _watch(self) -> None:
        began = time.monotonic()
        try:
            notice = await asyncio.to_thread(self._measure)
            # Runs are warned only if there was nothing more to collect.
            self._is_collection_due = bool(notice)
            self._live_state.notice = notice if self._live_state.notice or self._was_over else ""
            self._was_over = bool(notice)
        except (DeterminedError, OSError) as error:
            logger.warning("disk_limit cannot be watched: %s", error)
        finally:
            took = time.monotonic() - began
            self._next = time.monotonic() + max(_PAUSE_SECONDS, _SHARE_OF_TIME * took)
            self._task = None
            if self._is_collection_due:
                self._changed.set()

    def _measure(self) -> str:
        home = self._live_state.home
        limit = find_limit(home)
        if limit is None:
            return ""
        used = used_bytes(home)
        return beyond_limit(home, used, limit) if used >= limit else ""
