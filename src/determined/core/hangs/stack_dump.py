"""`kill -USR1 <pid>` shows where every thread of a training process is."""

from __future__ import annotations

import faulthandler
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_STDERR = 2  # Python's own stream may be replaced by one without a file


def install_stack_dump() -> Callable[[], None]:
    """Print stacks to stderr on SIGUSR1, then call the handler that was there before.

    The stacks are printed at once, even when the main thread is inside native code, which delays
    handlers written in Python. Returns the function that undoes this. Only the main thread can
    install handlers; elsewhere, and where the signal does not exist, nothing happens.
    """
    number = getattr(signal, "SIGUSR1", None)
    if number is None or threading.current_thread() is not threading.main_thread():
        return lambda: None
    previous: Any = signal.getsignal(number)
    handler: Any = _Handler(previous)

    def restore() -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(number) is handler:
            _set(number, signal.SIG_DFL if previous is None else previous)

    _set(number, handler)
    return restore


class _Handler:
    """Replaces the default, which would end the process, once the stacks are printed."""

    def __init__(self, previous: Any) -> None:
        self.previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if callable(self.previous):
            self.previous(number, frame)


def _set(number: int, handler: Any) -> None:
    """Install a handler; the stacks are printed before ours are called, whichever it is."""
    faulthandler.unregister(number)  # else it would keep the handler that it calls
    signal.signal(number, handler)
    if isinstance(handler, _Handler):
        faulthandler.register(number, file=_STDERR, all_threads=True, chain=True)
