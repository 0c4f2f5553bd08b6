"""`kill -USR1 <pid>` shows where every thread of a training process is."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any


def install_stack_dump() -> Callable[[], None]:
    """Print stacks to stderr on SIGUSR1, then call the handler that was there before.

    Returns the function that undoes this. Only the main thread can install handlers; elsewhere,
    and where the signal does not exist, nothing happens.
    """
    number = getattr(signal, "SIGUSR1", None)
    if number is None or threading.current_thread() is not threading.main_thread():
        return lambda: None
    previous: Any = signal.getsignal(number)

    def handle(received: int, frame: FrameType | None) -> None:
        # Nobody may read it, or the signal interrupted a print, which cannot be entered twice.
        with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
            _print_stacks(frame)
        if callable(previous):
            previous(received, frame)

    def restore() -> None:
        is_ours = signal.getsignal(number) is handle
        if is_ours and threading.current_thread() is threading.main_thread():
            signal.signal(number, signal.SIG_DFL if previous is None else previous)

    signal.signal(number, handle)
    return restore


def _print_stacks(current: FrameType | None) -> None:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident  # its own frame would show this handler
    for ident, frame in sys._current_frames().items():
        sys.stderr.write(f"Thread {names.get(ident, ident)}, most recent call last:\n")
        traceback.print_stack(current if ident == main else frame, file=sys.stderr)
    sys.stderr.flush()
