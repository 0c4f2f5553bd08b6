"""Records a run that the platform did not start: in the home's inbox, from a background thread.

Training only queues records. A thread writes them a moment later, so a disk that is slow, full or
missing neither delays nor stops a run; a process that is killed loses that moment at most.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from determined import journal
from determined._contracts.home import home_path, home_settings, make_home
from determined.core.backends.run_log import LogTap, RunLog
from determined.core.backends.tracking import how_it_ended
from determined.errors import JournalError
from determined.journal import InboxItem, Introduction, JournalWriter, Record

logger = logging.getLogger("determined.core")

_GATHER_SECONDS = 0.1
_HEARTBEAT_SECONDS = 60.0
_FLUSH_SECONDS = 5.0
_CLOSE_SECONDS = 10.0
_MOST_WAITING = 10_000

Introduce = Callable[[InboxItem], Introduction]


class Recorder:
    """Starts with the first record that is worth recording a run. Nothing here raises.

    Any thread of the process may use it; in a forked child it does nothing.
    """

    def __init__(self, introduce: Introduce) -> None:
        self._introduce = introduce
        self._owner = os.getpid()
        self._waiting: deque[Record] = deque(maxlen=_MOST_WAITING)
        self._lines: deque[tuple[int, str]] = deque(maxlen=_MOST_WAITING)
        self._journal: JournalWriter | None = None
        self._log: RunLog | None = None
        self._tap = LogTap(self.log)
        self._thread: threading.Thread | None = None
        self._news = threading.Event()
        self._hurry = threading.Event()
        self._requests: deque[threading.Event] = deque()
        self._is_over = False
        self._last_beat = time.monotonic()

    @property
    def has_begun(self) -> bool:
        return self._thread is not None

    def note(self, record: Record) -> None:
        """Record something, if this run is recorded at all."""
        if not self._is_over and os.getpid() == self._owner:
            self._waiting.append(record)
            if self._thread is not None and not self._news.is_set():
                self._news.set()

    def append(self, record: Record) -> None:
        """Record something that makes this run worth recording."""
        self.note(record)
        if self._thread is None and not self._is_over and os.getpid() == self._owner:
            self._begin()

    def log(self, text: str) -> None:
        """Add text to the log of the run."""
        if not self._is_over and os.getpid() == self._owner:
            self._lines.append((time.time_ns() // 1000, text))

    def flush(self) -> None:
        """Return when what was recorded so far is on disk, or after some seconds without answer."""
        if self._thread is None or os.getpid() != self._owner:
            return
        written = threading.Event()
        self._requests.append(written)
        self._hurry.set()
        self._news.set()
        if not self._is_over:
            written.wait(_FLUSH_SECONDS)

    def close(self, state: str, reason: str) -> None:
        """Say how the run ended, and stop."""
        if self._is_over or os.getpid() != self._owner:
            return
        if self._thread is not None:
            self._waiting.append(journal.Ended(state, reason))
            self._is_over = True
            self._hurry.set()
            self._news.set()
            self._thread.join(_CLOSE_SECONDS)  # a disk that hangs must not block us
            atexit.unregister(self._close_at_exit)
        self._is_over = True

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._work, name="determined-record", daemon=True)
        self._news.set()
        self._tap.attach()
        atexit.register(self._close_at_exit)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is exiting
            self._give_up(error)

    def _close_at_exit(self) -> None:
        """A context that was not closed ends with the process."""
        self.close(*how_it_ended(getattr(sys, "last_value", None), None))

    # In the thread

    def _work(self) -> None:
        try:
            self._open()
        except Exception as error:
            self._give_up(error)
            return
        is_over = False
        while not is_over:
            if self._news.wait(_HEARTBEAT_SECONDS):
                self._hurry.wait(_GATHER_SECONDS)
            self._news.clear()
            self._hurry.clear()
            is_over = self._is_over
            self._beat()
            self._write_safely()
        self._tap.detach()
        for part in (self._journal, self._log):
            if part is not None:
                part.close()

    def _beat(self) -> None:
        if time.monotonic() - self._last_beat >= _HEARTBEAT_SECONDS:
            self._last_beat = time.monotonic()
            self._waiting.append(journal.Heartbeat())

    def _write_safely(self) -> None:
        requests = [self._requests.popleft() for _ in range(len(self._requests))]
        try:
            self._write()
            if requests and self._journal is not None:
                self._journal.sync()
        except Exception as error:
            logger.debug("Part of this run is not recorded yet: %s", error)
        for request in requests:
            request.set()

    def _open(self) -> None:
        home = home_path()
        make_home(home)
        if home_settings(home).get("tracking") in (False, "off", "no"):
            raise ValueError(f"tracking is off in {home}/platform.yaml")
        item, writer = InboxItem.create(home)
        introduction = self._introduce(item)
        started = journal.RunStarted(1, introduction.steps_completed, time=introduction.time)
        writer.append([introduction, started])
        self._journal, self._log = writer, RunLog(item)

    def _write(self) -> None:
        """Append all that waits; keep what cannot be written now, drop what never can be."""
        if self._journal is None or self._log is None:
            return
        while self._lines:
            moment, text = self._lines.popleft()
            self._log.write(text, moment)
        while self._waiting:
            records = [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                self._journal.append(records)
            except JournalError as error:
                is_full = isinstance(error.__cause__, OSError)
                if is_full or len(records) > 1:
                    self._waiting.extendleft(reversed(records))
                if is_full:
                    raise
                self._write_singly()

    def _write_singly(self) -> None:
        """One of the records is too large: keep the others."""
        assert self._journal is not None
        for _ in range(len(self._waiting)):
            record = self._waiting.popleft()
            try:
                self._journal.append([record])
            except JournalError as error:
                if isinstance(error.__cause__, OSError):
                    self._waiting.appendleft(record)
                    raise
                logger.debug("%s", error)

    def _give_up(self, error: Exception) -> None:
        self._is_over = True
        self._tap.detach()
        while self._requests:
            self._requests.popleft().set()
        self._waiting.clear()
        self._lines.clear()
        logger.debug("This run is not recorded: %s", error)
