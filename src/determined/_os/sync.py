"""Waiting for the disk, and not waiting for it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

from determined._os.weak_file_systems import fsync

_SYNC_FILE_RANGE_WRITE = 2  # <linux/fs.h>


def sync(path: Path) -> None:
    """Return when a file's content, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fsync(descriptor, path)
    finally:
        os.close(descriptor)


def begin_writeback(descriptor: int, offset: int, count: int) -> None:
    """Let the disk begin with what was written there, so that `fsync` has less to wait for.

    A hint: where there is no such call, or it fails, nothing is lost but time.
    """
    if (call := _sync_file_range()) is not None:
        call(descriptor, offset, count, _SYNC_FILE_RANGE_WRITE)


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux's system call, which Python has no name for."""
    import ctypes

    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call
