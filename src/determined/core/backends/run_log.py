"""The log of a run that writes its own: lines with timestamps."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable

from determined._contracts.log_index import Stamper, pack
from determined.common._logging import LOG_FORMAT
from determined.journal import InboxItem

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class RunLog:
    """Appends text to the log of an item of the inbox.

    Where it cannot be written (the item is on another machine, the disk is full) the text is lost.
    """

    def __init__(self, item: InboxItem, *, with_times: bool = True) -> None:
        self._guard = threading.Lock()
        self._stamper = Stamper()
        self._log: int | None = None
        self._times: int | None = None
        with contextlib.suppress(OSError):
            self._log = os.open(item.log, _FLAGS, 0o600)
            # Several ranks may write to one log; only the first can tell where its lines begin.
            self._times = os.open(item.log_times, _FLAGS, 0o600) if with_times else None

    def write(self, text: str, microseconds: int | None = None) -> None:
        """Add text, at the end of which a line may be unfinished."""
        data = text.encode(errors="replace")
        moment = time.time_ns() // 1000 if microseconds is None else microseconds
        with self._guard, contextlib.suppress(OSError):
            if self._log is None or not data:
                return
            stamp = self._stamper.stamp(data, moment)
            if stamp is not None and self._times is not None:
                os.write(self._times, pack(stamp))
            os.write(self._log, data)

    def close(self) -> None:
        """Close the files; what is written later is dropped."""
        with self._guard:
            for descriptor in (self._log, self._times):
                if descriptor is not None:
                    os.close(descriptor)
            self._log = self._times = None


class LogTap(logging.Handler):
    """Passes the log lines of the library on, and changes nothing about where else they go."""

    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(LOG_FORMAT))
        self._take = take

    def attach(self) -> None:
        """Start listening."""
        logging.getLogger("determined").addHandler(self)

    def detach(self) -> None:
        """Stop listening."""
        logging.getLogger("determined").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Record a line; warnings that no other handler shows go where Python shows them."""
        try:
            self._take(self.format(record) + "\n")
        except Exception:
            self.handleError(record)
        last_resort = logging.lastResort
        is_shown = last_resort is not None and record.levelno >= last_resort.level
        if last_resort is not None and is_shown and not _has_others(record.name):
            last_resort.handle(record)


def _has_others(name: str) -> bool:
    """Whether a logger has a handler besides taps; with one, Python shows nothing by itself."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(handler, LogTap) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
