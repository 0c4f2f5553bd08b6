"""End a process whose main thread no longer responds.

Handlers written in Python run in the main thread, and only between two of its instructions: inside
a collective of torch that never completes they never run. So threads watch for the two cases in
which such a process must end: its launcher is gone, or a signal is repeated.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_POLL_SECONDS = 1.0
# How long the main thread may take to notice a signal, and the process to save and exit after it.
_NOTICE_SECONDS = 10.0
_LEAVE_SECONDS = 30.0
# Two signals within this are one: a process group and a launcher may both deliver it.
_DUPLICATE_SECONDS = 1.0
_REPEAT_SECONDS = 2.0
_LAUNCHERS = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "determined.launch.torch_distributed",
    "determined.launch.torchrun",
    "determined.launch.wrap_rank",
)

HandledAt = Callable[[], float]
"""Returns when a handler last had its turn in the main thread, in seconds of time.monotonic()."""


def end_with_launcher(handled_at: HandledAt) -> Callable[[], None]:
    """Stop this process when the launcher that started it is gone; returns what ends the watch.

    It is asked to stop first, so that it can save. A script that no launcher started continues
    whatever happens to its shell.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return lambda: None
    ended = threading.Event()
    threading.Thread(
        target=_watch,
        args=(_find_launchers(), handled_at, ended),
        name="determined-launcher",
        daemon=True,
    ).start()
    return ended.set


def _find_launchers() -> list[psutil.Process]:
    """Return the launchers that this process descends from; if none looks like one, its parent."""
    import psutil

    parents = psutil.Process().parents()
    return [parent for parent in parents if _is_launcher(parent)] or parents[:1]


def _is_launcher(process: psutil.Process) -> bool:
    import psutil

    try:
        arguments = process.cmdline()
    except psutil.Error:
        return False
    return any(
        argument in _LAUNCHERS or argument.endswith(("/torchrun", "torch/distributed/run.py"))
        for argument in arguments
    )


def _watch(launchers: list[psutil.Process], handled_at: HandledAt, ended: threading.Event) -> None:
    while not any(map(_is_gone, launchers)):
        if ended.wait(_POLL_SECONDS):
            return
    _print_to_stderr("The launcher of this process is gone, so the process stops.")
    asked_at = time.monotonic()
    os.kill(os.getpid(), signal.SIGTERM)
    if not ended.wait(_NOTICE_SECONDS) and handled_at() < asked_at:
        _end(signal.SIGTERM)
    if not ended.wait(_LEAVE_SECONDS - _NOTICE_SECONDS):
        _end(signal.SIGTERM)


def _is_gone(process: psutil.Process) -> bool:
    import psutil

    try:
        return not process.is_running() or bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


class RepeatedSignalWatch:
    """Ends the process when a signal comes again and the main thread does not notice it.

    Create and close it in the main thread.
    """

    def __init__(self, numbers: tuple[int, ...], handled_at: HandledAt) -> None:
        self._numbers = numbers
        self._handled_at = handled_at
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._closed = threading.Event()
        self._others = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if self._others != -1:
            signal.set_wakeup_fd(self._others)  # an event loop's: it needs it more
        _open.append(self)
        self._thread = threading.Thread(target=self._listen, name="determined-signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        if self._others == -1:
            signal.set_wakeup_fd(-1)
        if self in _open:  # and not a forked child's copy
            _open.remove(self)
            self._closed.set()
            self._reader.shutdown(socket.SHUT_RDWR)  # ends the wait, despite other copies
            self._thread.join()
        self._writer.close()
        self._reader.close()

    def _listen(self) -> None:
        first: float | None = None
        while received := self._reader.recv(64):
            now = time.monotonic()
            numbers = [number for number in received if number in self._numbers]
            if numbers and first is None:
                first = now
            elif first is not None and numbers and now - first > _DUPLICATE_SECONDS:
                is_over = self._closed.wait(_REPEAT_SECONDS)
                if not is_over and self._handled_at() < now - _DUPLICATE_SECONDS / 2:
                    _end(numbers[-1])


# A forked child must not write into its parent's socket.
_open: list[RepeatedSignalWatch] = []


def _forget_in_child() -> None:
    if _open:
        signal.set_wakeup_fd(-1)
        _open.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def _end(number: int) -> None:
    faulthandler.dump_traceback(2)
    _print_to_stderr(
        f"The main thread did not react to {signal.Signals(number).name} (its stack is above), so "
        "the process is terminated."
    )
    os._exit(128 + number)


def _print_to_stderr(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads us
        os.write(2, f"{text}\n".encode())
