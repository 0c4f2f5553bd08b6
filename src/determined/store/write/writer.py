"""The single writer of a home, and the commands that any client may send to it."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import sqlite3
import time
import uuid as uuids
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from determined.errors import OutdatedStoreError, StoreError
from determined.store._connection import (
    FILE_NAME,
    as_store_error,
    is_outdated,
    migrate,
    open_writable,
    prepare,
)
from determined.store._identity import Standing
from determined.store._records import COMMANDS, JOURNALS, JournalPosition
from determined.store.write.ingest import Ingest
from determined.store.write.settling import settle
from determined.store.write.transaction import Transaction

_LOCK_NAME = "store.lock"
_BUSY_SECONDS = 120.0


class Writer:
    """Writes the store of a home. There is one at a time; a second one raises StoreError.

    It migrates an older store to this version. Use it from one thread.
    """

    def __init__(self, home: Path, *, is_draft: bool = False) -> None:
        """Open the store of a home, with paths that lead there; a draft is for another place."""
        prepare(home)
        self._path = home / FILE_NAME
        lock = _take_lock(home / _LOCK_NAME)
        self._lock: int | None = lock
        try:
            self._connection = open_writable(home)
            self._connection.execute("PRAGMA wal_autocheckpoint=10000")
            self._connection.execute("PRAGMA cache_size=-65536")
            migrate(self._connection)
            self.standing = Standing.HOME if is_draft else settle(self._connection, home)
            """Whether the home is where it was; it is noted if not."""
        except BaseException:
            os.close(lock)
            raise
        self._ingest = Ingest(self._connection)
        self._is_durable = True
        self._is_suspect = False

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[Transaction]:
        """Everything in the `with` block is committed at its end, or nothing is.

        Args:
            durable: return only when the commit is on disk, as every decision requires. Without
                it, a power cut may undo the whole transaction; journals are then read again.
        """
        if self._is_suspect:
            self._write_again()
        if durable != self._is_durable:
            mode = "FULL" if durable else "NORMAL"
            self._connection.execute(f"PRAGMA synchronous={mode}")
            self._is_durable = durable
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield Transaction(self._connection, self._ingest, durable)
            self._ingest.flush()
            self._connection.execute("COMMIT")
        except BaseException as error:
            self._ingest.forget()
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                self._is_suspect = self._is_suspect or "I/O error" in str(error)
                raise as_store_error(error, self._path) from error
            raise

    def _write_again(self) -> None:
        """Move what is in the log to the database itself, after the disk failed to keep something.

        The system reports that only once, and drops what it could not write. That may be earlier
        transactions in the log, and without them the next ones could not be read after a power cut.
        """
        try:
            self._connection.execute("PRAGMA synchronous=FULL")
            self._is_durable = True
            (is_busy, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise as_store_error(error, self._path) from error
        if is_busy:
            raise StoreError(f"{self._path} stays locked by another process. Try again.")
        self._is_suspect = False

    def journals(self, trial_id: int, run_id: int) -> dict[str, JournalPosition]:
        """How far the journals of a run were read, by path."""
        found = JOURNALS.select(
            self._connection, "WHERE trial_id=? AND run_id=? ORDER BY path", trial_id, run_id
        )
        return {position.path: position for position in found}

    def has_commands(self) -> bool:
        """Whether a client is waiting for an answer."""
        query = "SELECT 1 FROM command WHERE answered IS NULL LIMIT 1"
        return self._connection.execute(query).fetchone() is not None

    def close(self) -> None:
        """Close the store so that another writer can open it; calling again does nothing."""
        self._connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def send_command(
    home: Path,
    verb: str,
    arguments: dict[str, Any],
    *,
    sender: str | None = None,
    uuid: str | None = None,
) -> str:
    """Queue a command for the supervisor and return its UUID; any process may do this.

    The same UUID is accepted only once: if in doubt, send it again.
    """
    prepare(home)
    identifier = uuid or str(uuids.uuid4())
    connection = open_writable(home)
    try:
        if is_outdated(connection):
            raise OutdatedStoreError(
                f"{home / FILE_NAME} has an older schema: start the supervisor, which migrates it."
            )
        _begin_immediate(connection)
        if COMMANDS.find(connection, "uuid=?", identifier) is None:
            values = {
                "uuid": identifier,
                "verb": verb,
                "arguments": arguments,
                "sender": sender or getpass.getuser(),
                "created": time.time(),
            }
            COMMANDS.insert(connection, values)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise as_store_error(error, home / FILE_NAME) from error
    finally:
        connection.close()
    return identifier


def _begin_immediate(connection: sqlite3.Connection) -> None:
    """Wait for our turn: among many writers, SQLite may let others go first for a long time."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise


def _take_lock(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StoreError(
            f"Another process is already writing the store (it holds {path})."
        ) from error
    return lock
