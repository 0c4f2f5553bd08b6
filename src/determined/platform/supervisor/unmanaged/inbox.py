"""Watches the inbox: runs that the platform did not start.

They do not need a supervisor. Their reports are read whenever one is running. That a process is
gone is known by its lock on this machine, and by its silence on others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from determined._os import inotify
from determined.errors import JournalError
from determined.journal import InboxItem, item_names
from determined.platform.homes.home import Home
from determined.platform.supervisor.fault_isolation import FaultyItem, isolating
from determined.platform.supervisor.unmanaged.runs import UnmanagedRuns
from determined.store import Transaction

logger = logging.getLogger("determined.supervisor")

_POLL_SECONDS = 1.0
_IDLE_POLL_SECONDS = 5.0  # inotify does not see what other machines add
_SILENT_SECONDS = 300.0
_ABANDONED_SECONDS = 3600.0


class _ItemState(NamedTuple):
    """What can be seen of an item without reading it."""

    size: int
    is_held: bool
    is_silent: bool


class Inbox:
    """The items of a home's inbox, as they were last seen."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._known: dict[str, _ItemState] = {}
        self._changed_items: dict[str, _ItemState] = {}
        self._finished: list[tuple[InboxItem, Path]] = []
        self._orphans: list[InboxItem] = []
        self._adopted: list[InboxItem] = []
        self._watch: int | None = None
        self.has_backlog = False
        """Whether there is more to read than was read last time."""

    def watch(self, changed: asyncio.Event) -> None:
        """Set `changed` when an item arrives, until `close`."""
        with contextlib.suppress(OSError):
            self._home.inbox.mkdir(mode=0o700, exist_ok=True)
        self._watch = inotify.watch(self._home.inbox, inotify.MOVED_HERE)
        if self._watch is not None:
            asyncio.get_running_loop().add_reader(self._watch, self._item_arrived, changed)

    def _item_arrived(self, changed: asyncio.Event) -> None:
        assert self._watch is not None
        inotify.forget(self._watch)
        changed.set()

    def close(self) -> None:
        if self._watch is not None:
            asyncio.get_running_loop().remove_reader(self._watch)
            os.close(self._watch)
            self._watch = None

    def poll_seconds(self, *, is_idle: bool) -> float:
        """How long to wait between polls: known items do not notify us when they grow."""
        is_notified = is_idle and self._watch is not None and not self._known
        return _IDLE_POLL_SECONDS if is_notified else _POLL_SECONDS

    def forget(self) -> None:
        """Check everything again: what was decided may not have been committed."""
        self._known.clear()
        self._changed_items.clear()
        for decided in (self._finished, self._orphans, self._adopted):
            decided.clear()

    def find_changes(self) -> bool:
        """Check all items, and return whether there is anything new to record."""
        now = time.time()
        self._changed_items = {}
        names = item_names(self._home.path)
        for name in names:
            state = _state_of(self._item(name), now)
            if self._known.get(name) != state:
                self._changed_items[name] = state
        for gone in self._known.keys() - set(names):
            del self._known[gone]
        return bool(self._changed_items)

    def record(self, transaction: Transaction) -> None:
        """Record what is new. A run that continues another comes after it."""
        runs = UnmanagedRuns(self._home, transaction)
        waiting, at_last = dict(self._changed_items), False
        while waiting:
            later = {
                name: state
                for name, state in waiting.items()
                if not self._take(runs, name, state, at_last=at_last)
            }
            is_stuck = len(later) == len(waiting)
            waiting = later
            if is_stuck and runs.backlog:
                break  # what they wait for may be in a journal not read to its end
            at_last = is_stuck
        self.has_backlog = bool(runs.backlog)
        for name in (*runs.backlog, *waiting):
            self._changed_items.pop(name, None)
        self._finished += runs.finished
        self._orphans += runs.orphans
        self._adopted += runs.adopted

    def act(self) -> None:
        """Move finished items out of the inbox; all of it is committed."""
        self._known.update(self._changed_items)
        self._changed_items = {}
        for item in self._adopted:
            if not item.is_adopted:
                item.mark_adopted()
        for item, folder in self._finished:
            _move_out(item, folder)
        for item in self._orphans:
            if not item.is_held:
                shutil.rmtree(item.path, ignore_errors=True)
        for done in (self._finished, self._orphans, self._adopted):
            done.clear()

    def reject(self, name: str) -> None:
        """Set an item aside that cannot be recorded, for people to look at."""
        path = self._home.inbox / name
        logger.error("%s cannot be read; it is now %s.unreadable", path, name)
        with contextlib.suppress(OSError):
            path.rename(path.with_name(f"{name}.unreadable"))

    def sweep(self, transaction: Transaction) -> None:
        """Remove unfinished items of killed processes, and end the runs of missing ones."""
        UnmanagedRuns(self._home, transaction).close_missing()
        if not self._home.inbox.is_dir():
            return
        for path in self._home.inbox.iterdir():
            with contextlib.suppress(OSError):
                is_old = time.time() - path.stat().st_mtime > _ABANDONED_SECONDS
                if path.name.startswith(".") and is_old:
                    shutil.rmtree(path, ignore_errors=True)

    def _item(self, name: str) -> InboxItem:
        return InboxItem(self._home.inbox / name)

    def _take(self, runs: UnmanagedRuns, name: str, state: _ItemState, *, at_last: bool) -> bool:
        item, about = self._item(name), {"is_held": state.is_held, "is_silent": state.is_silent}
        with isolating(FaultyItem(name)):
            try:
                return runs.take(item, at_last=at_last, **about)
            except JournalError as error:
                if not isinstance(error.__cause__, OSError):
                    raise
                logger.warning("%s", error)  # such as another user's: read the others
                return True


def _state_of(item: InboxItem, now: float) -> _ItemState:
    """The state of an item. The lock is checked first: a process gone by then writes no more."""
    is_held = item.is_held
    try:
        status = item.journal.stat()
    except OSError:
        return _ItemState(0, False, True)  # already moved in part
    return _ItemState(status.st_size, is_held, now - status.st_mtime > _SILENT_SECONDS)


def _move_out(item: InboxItem, folder: Path) -> None:
    """Move the log to the other runs' and delete the rest. Safe to repeat."""
    for path in (item.journal, item.path / "control", item.path / "adopted"):
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        item.path.rename(folder)
