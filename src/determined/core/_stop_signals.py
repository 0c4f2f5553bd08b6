"""Turn the signals that end a process into a request to stop at a good moment."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from determined.core.hangs.forced_exit import RepeatedSignalWatch

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# torchrun forwards a Ctrl-C that the terminal has already delivered to its workers.
_DUPLICATE_SECONDS = 1.0


class StopSignals:
    """Catches SIGTERM, SIGHUP and the first SIGINT while armed.

    `received` is the number of the first one. A second SIGINT puts the previous handlers back and
    raises KeyboardInterrupt; a second signal that the main thread does not notice, because it is
    stuck in native code, ends the process. Signals that the process ignores (as under `nohup`)
    stay ignored. Only the main thread can arm.
    """

    def __init__(self, is_chief: bool) -> None:
        self.received: int | None = None
        self.handled_at = 0.0
        self._is_chief = is_chief
        self._pid = 0
        self._previous: dict[int, Any] = {}
        self._interrupted_at: float | None = None
        self._repeated_signals: RepeatedSignalWatch | None = None

    @property
    def is_armed(self) -> bool:
        return bool(self._previous)

    def arm(self) -> bool:
        """Install the handlers; False if this is not the main thread or they are in place."""
        if self.is_armed or threading.current_thread() is not threading.main_thread():
            return False
        self._pid = os.getpid()
        self._interrupted_at = None
        for number in _HANDLED:
            handler = signal.getsignal(number)
            # None: installed by foreign code that Python could not put back.
            if handler is not signal.SIG_IGN and handler is not None:
                self._previous[number] = signal.signal(number, self._handle)
        if self._previous:
            self._repeated_signals = RepeatedSignalWatch(
                tuple(self._previous), lambda: self.handled_at
            )
        return self.is_armed

    def disarm(self) -> None:
        """Put back the handlers that were there before."""
        if threading.current_thread() is not threading.main_thread():
            return
        if self._repeated_signals is not None:
            self._repeated_signals.close()
            self._repeated_signals = None
        while self._previous:
            number, handler = self._previous.popitem()
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            _handle_in_child(number)
            return
        self.handled_at = time.monotonic()
        if number == signal.SIGINT and not self._is_first_interrupt():
            self.disarm()
            raise KeyboardInterrupt
        if self.received is None:
            self.received = number
            if self._is_chief:
                _print(
                    f"\nReceived {signal.Signals(number).name}: finishing the current batch and "
                    "saving a checkpoint. Press Ctrl-C again to stop at once.\n"
                )

    def _is_first_interrupt(self) -> bool:
        now = time.monotonic()
        if self._interrupted_at is None:
            self._interrupted_at = now
            return True
        return (
            "TORCHELASTIC_RUN_ID" in os.environ and now - self._interrupted_at < _DUPLICATE_SECONDS
        )


def _handle_in_child(number: int) -> None:
    """A forked child inherited our handler.

    Ctrl-C reaches it too, but its parent still needs it to finish the batch; any other signal is
    meant to end it.
    """
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _print(text: str) -> None:
    post = getattr(sys.stderr, "post", None)  # of a live display, which would overwrite it
    if post is not None:
        post(text.lstrip())
        return
    # The handler may have interrupted a print: Python's own streams are not reentrant.
    with contextlib.suppress(OSError):  # the terminal was closed, hence the signal
        os.write(2, text.encode())
