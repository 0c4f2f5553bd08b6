"""A home with its store and its supervisor, which is started when there is work for it."""

from __future__ import annotations

import errno
import signal
import subprocess
import tempfile
import threading
import time
import uuid as uuids
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from determined.errors import DeterminedError, OutdatedStoreError, RefusedError
from determined.platform.homes.home import Home
from determined.platform.homes.inbox_backlog import InboxBacklog
from determined.platform.supervisor import presence
from determined.store import Reader, Standing, find_damage, is_inside, is_made, send_command

T = TypeVar("T")

_POLL_SECONDS = 0.005
_LONGEST_POLL_SECONDS = 0.1
_MOST_FAILURES = 3
_LONGEST_CATCH_UP_SECONDS = 30.0
_STOPPED_AFTER_SECONDS = 5.0
_TRANSACTION_BYTES = 1 << 18  # a small transaction of the supervisor, with room to spare


class SupervisedHome:
    """Reads the store for queries; sends commands and waits for the supervisor's answer."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._reader: Reader | None = None
        self._opening = threading.Lock()
        self._started: subprocess.Popen[bytes] | None = None

    @property
    def reader(self) -> Reader:
        """The store, for queries."""
        with self._opening:
            if self._reader is None:
                self._reader = self._up_to_date(lambda: Reader(self.home.path))
            return self._reader

    @property
    def has_store(self) -> bool:
        """Whether anything was ever created here."""
        return self._reader is not None or is_made(self.home.path)

    @property
    def original(self) -> str | None:
        """Where the home is that this one is a copy of; None if it is no copy."""
        identity = self.reader.identity if self.has_store else None
        if identity is None or identity.standing(self.home.path) is not Standing.COPY:
            return None
        return identity.path

    def may_delete(self, path: Path) -> bool:
        """Whether a file is this home's: in a copy it may be a link to one of the home itself."""
        return self.original is None or is_inside(self.home.path, path)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def ask(self, verb: str, arguments: dict[str, Any], uuid: str | None = None) -> dict[str, Any]:
        """Send a command and wait for its answer; start the supervisor if there is none."""
        presence.end_older(self.home)
        identifier = self._send(verb, arguments, uuid or str(uuids.uuid4()))
        pause, failures = _POLL_SECONDS, 0
        check_at = time.monotonic() + _STOPPED_AFTER_SECONDS
        while True:
            if time.monotonic() > check_at:
                presence.refuse_stopped(self.home)
                self._refuse_full_disk()
                self._refuse_damage()
                self._refuse_failing_disk()
                check_at = time.monotonic() + _STOPPED_AFTER_SECONDS
            failures += self._ensure_supervisor()
            if failures == _MOST_FAILURES:
                raise DeterminedError(
                    f"The supervisor did not start. {self._last_error()}See "
                    f"{self.home.supervisor_log}."
                )
            time.sleep(pause)
            pause = min(pause * 1.3, _LONGEST_POLL_SECONDS)
            command = self.reader.command(identifier)
            if command is not None and command.answered is not None:
                answer = command.answer or {}
                if not command.is_ok:
                    raise RefusedError(str(answer.get("error")))
                return answer

    def adopt(self) -> int:
        """Make a copy of a home a home of its own; return how many checkpoints are outside it."""
        if self.original is None:
            raise RefusedError(f"{self.home.path} is a home of its own already.")
        return int(self.ask("adopt", {})["foreign"])

    def _refuse_full_disk(self) -> None:
        """Raise DeterminedError if the supervisor cannot answer for lack of space."""
        try:
            with tempfile.TemporaryFile(dir=self.home.path) as probe:
                probe.write(bytes(_TRANSACTION_BYTES))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                return
            raise DeterminedError(
                f"The supervisor cannot write in {self.home.path}: {error.strerror}. Free some "
                "space there: the command is recorded, and is then carried out."
            ) from error

    def _refuse_damage(self) -> None:
        """Raise StoreError if the supervisor cannot answer because the store is damaged."""
        from determined.platform.runs.keeper.log_excerpt import read_end

        if " is damaged (" in read_end(self.home.supervisor_log):
            error = find_damage(self.home.path)
            if error is not None:
                raise error

    def _refuse_failing_disk(self) -> None:
        """Raise DeterminedError if the supervisor cannot answer because its disk fails."""
        from determined.platform.runs.keeper.log_excerpt import read_end

        _, failed, words = read_end(self.home.supervisor_log).rpartition(presence.CANNOT_USE_STORE)
        if failed and "disk I/O error" in words and presence.USES_STORE_AGAIN not in words:
            raise DeterminedError(
                f"The supervisor cannot write in {self.home.path}: disk I/O error. The system's "
                "log (`dmesg`) says more about the disk. The command is recorded, and is carried "
                "out as soon as that works again."
            )

    def wake_if_needed(self) -> None:
        """Start a supervisor if there is unfinished work and none is running.

        Wait a moment for it to read the inbox: whoever asks wants to see what scripts left there.
        """
        if self.original is not None:  # what is unfinished in a copy is the home's work
            return
        backlog = InboxBacklog(self.home)
        is_news = backlog.is_unread(self._known_offset)
        if is_news or backlog.has_ended or self._has_work():
            self._ensure_supervisor()
        deadline = time.monotonic() + _LONGEST_CATCH_UP_SECONDS
        while is_news and not self._start_failed and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            is_news = backlog.is_unread(self._known_offset)

    @property
    def _start_failed(self) -> bool:
        return self._started is not None and self._started.poll() not in (None, 0)

    def _known_offset(self, path: str) -> int | None:
        return self.reader.journal_offset(path) if self.has_store else None

    def _ensure_supervisor(self) -> bool:
        """Wake the supervisor, or start one; return whether the one we started last has failed."""
        if presence.wake(self.home):
            return False
        last = self._started
        if last is not None and last.poll() is None:
            return False  # it is about to listen
        try:
            self._started = presence.start(self.home)
        except OSError as error:
            raise DeterminedError(
                f"The supervisor cannot be started: {error.filename}: {error.strerror}."
            ) from error
        return last is not None and last.returncode not in (0, -signal.SIGTERM, -signal.SIGKILL)

    def _last_error(self) -> str:
        """The error that a supervisor reported before it exited, if any."""
        from determined.platform.runs.keeper.log_excerpt import read_end

        _, found, message = read_end(self.home.supervisor_log).rpartition(" ERROR root: ")
        return f"{message.strip()} " if found else ""

    def _has_work(self) -> bool:
        if not self.has_store:
            return False
        unfinished = ["ACTIVE", "STOPPING_COMPLETED", "STOPPING_CANCELED"]
        unfinished += ["STOPPING_KILLED", "STOPPING_ERROR", "DELETING"]
        reader = self.reader
        return (
            reader.has_unanswered()
            or reader.count_experiments(unfinished) > 0
            or reader.has_chores()
            or reader.has_kept_runs()  # such as one of a paused experiment that has to stop
        )

    def _send(self, verb: str, arguments: dict[str, Any], uuid: str) -> str:
        return self._up_to_date(lambda: send_command(self.home.path, verb, arguments, uuid=uuid))

    def _up_to_date(self, access: Callable[[], T]) -> T:
        """Access the store; one of an older version is migrated first, by a supervisor."""
        deadline, failures = time.monotonic() + _LONGEST_CATCH_UP_SECONDS, 0
        while True:
            try:
                return access()
            except OutdatedStoreError:
                presence.end_older(self.home)  # one of the older version would leave it as it is
                failures += self._ensure_supervisor()
                if failures == _MOST_FAILURES or time.monotonic() > deadline:
                    raise
                time.sleep(_LONGEST_POLL_SECONDS)
