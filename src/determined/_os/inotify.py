"""Get notified when a file or a folder changes, instead of polling."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

MODIFIED = 0x02
MOVED_HERE = 0x80


def watch(path: str | os.PathLike[str], events: int) -> int | None:
    """Return a descriptor that is readable once `events` happened; None if not supported.

    Changes that other machines make in a shared folder are not seen.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:  # the number per user is limited
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), events) < 0:
        os.close(descriptor)
        return None
    return descriptor


def forget(descriptor: int) -> None:
    """Discard all events so far."""
    with contextlib.suppress(BlockingIOError):
        os.read(descriptor, 4096)
