"""Hang where no signal handler written in Python gets a turn."""

from __future__ import annotations

import ctypes


def hang_in_native_code() -> None:
    """Take a mutex twice: the second time lasts for ever, and a signal does not interrupt it."""
    mutex = ctypes.create_string_buffer(64)
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)
