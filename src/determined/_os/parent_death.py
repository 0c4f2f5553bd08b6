"""A signal from the kernel when the process that started us dies (Linux only)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def libc() -> ctypes.CDLL | None:
    """The C library, None where it has no such signal."""
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def end_with_parent(number: signal.Signals) -> None:
    """Have the kernel send us `number` when our parent dies, however it dies."""
    parent = os.getppid()
    library = libc()
    if library is not None:
        library.prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os.kill(os.getpid(), number)
