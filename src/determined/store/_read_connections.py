"""Read-only connections: one per thread, closed with the thread or with the reader."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from determined.errors import OutdatedStoreError
from determined.store._connection import FILE_NAME, is_outdated, open_read_only


class _Held:
    """A connection that is closed when its thread ends or the reader is closed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        self.connection.close()


class Connected:
    """Read-only connections to the store of a home, one per thread."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._local = threading.local()
        self._all: weakref.WeakSet[_Held] = weakref.WeakSet()
        self._guard = threading.Lock()
        if is_outdated(self._connection):
            self.close()
            raise OutdatedStoreError(
                f"{home / FILE_NAME} has an older schema: start the supervisor, which migrates it."
            )

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._guard:
            for held in list(self._all):
                held.connection.close()
            self._all.clear()
        self._local = threading.local()

    @property
    def _connection(self) -> sqlite3.Connection:
        held: _Held | None = getattr(self._local, "held", None)
        if held is None:
            held = self._local.held = self._open()
        return held.connection

    def _open(self) -> _Held:
        held = _Held(open_read_only(self._home))
        with self._guard:
            self._all.add(held)
        return held

    def data_version(self) -> int:
        """A number that changes, as seen by this thread, whenever something is committed."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def version_probe(self) -> Callable[[], int]:
        """A query like `data_version` that any thread may run, one at a time."""
        held = self._open()
        return lambda: int(held.connection.execute("PRAGMA data_version").fetchone()[0])

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All queries of this thread within the `with` block see one state of the store."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")
