"""One process trains a run at a time: a lock that the kernel releases when it dies."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
import weakref
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from determined.errors import RunInUseError
from determined.storage.local.hidden import LOCKS
from determined.storage.local.locks import FolderLock

logger = logging.getLogger("determined.storage")

# A process that was killed a moment ago may still be exiting, as after an elastic restart.
_LOCK_WAIT_SECONDS = 2.0


class _RunLock(FolderLock):
    """A lock that forked children (such as loader workers) do not hold when their parent dies."""

    def describe(self) -> None:
        """Record which process holds it, for the error of the next one."""
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "started": started}
        self._path.write_text(json.dumps(holder))
        _held.add(self)

    def forget(self) -> None:
        """Close the copy that a fork got; the parent's lock stays."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def release(self) -> None:
        if self in _held:  # not in a forked child
            _held.discard(self)
            super().release()


_held: weakref.WeakSet[_RunLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()
    _held.clear()


os.register_at_fork(after_in_child=_forget_all)


@contextlib.contextmanager
def lock_run(storage_base: Path | None, location: str, name: str) -> Iterator[None]:
    """Lock a run, whose name must suit a file; raise `RunInUseError` if a live process holds it.

    The lock file is next to the checkpoints, so it works between machines that share a folder. For
    a storage that is not a folder (`storage_base` is None) it works on this machine only.
    """
    path = _lock_file(storage_base, location, name)
    lock = None
    try:
        lock = _acquire(path)
    except OSError as error:
        logger.debug("Could not lock run %s: %s", name, error)
        yield  # a file system without locks: holders cannot be known
        return
    if lock is None:
        raise RunInUseError(name, **holder_of(path))
    try:
        yield
    finally:
        lock.release()


def _acquire(path: Path) -> _RunLock | None:
    deadline = time.monotonic() + _LOCK_WAIT_SECONDS
    while (lock := _RunLock.try_exclusive(path)) is None:
        if time.monotonic() > deadline:
            return None
        time.sleep(0.05)
    assert isinstance(lock, _RunLock)
    lock.describe()
    return lock


def holder_of(path: Path) -> dict[str, Any]:
    """Return `pid`, `host` and `started` of a lock's holder, as far as recorded."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, dict):
            return {key: found.get(key) for key in ("pid", "host", "started")}
    return {}


def live_holder(storage_base: Path | None, location: str, name: str) -> dict[str, Any] | None:
    """Return the process that trains a run now, None if there is none."""
    path = _lock_file(storage_base, location, name)
    try:
        if not path.exists():
            return None
        lock = FolderLock.try_exclusive(path)
    except OSError:
        return None
    if lock is None:
        return holder_of(path)
    lock.release()
    return None


def _lock_file(storage_base: Path | None, location: str, name: str) -> Path:
    if storage_base is not None:
        return storage_base / LOCKS / f"run-{name}"
    import platformdirs

    folder = Path(platformdirs.user_data_dir("determined")) / "run-locks"
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = "".join(c if c.isalnum() else "-" for c in location)[:60]
    return folder / f"{place}-{name}"
