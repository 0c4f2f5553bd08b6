"""Connections that only read: one per thread, closed with the thread or with the reader.

A recreated store is another file in the same place. Readers notice, and open that one.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from determined.errors import OutdatedStoreError, StoreError
from determined.store._connection import (
    FILE_NAME,
    as_store_error,
    damaged,
    is_outdated,
    open_read_only,
)


class _Held:
    """A connection that is closed when its thread ends or the reader is closed."""

    def __init__(self, connection: sqlite3.Connection, file: int | None) -> None:
        self.connection = connection
        self.file = file
        self.is_in_snapshot = False

    def data_version(self) -> int:
        """What changes with every commit, and with the file."""
        version = int(self.connection.execute("PRAGMA data_version").fetchone()[0])
        return ((self.file or 0) << 32) + version

    def __del__(self) -> None:
        self.connection.close()


class Connections:
    """Read-only connections to the store of a home, one per thread."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.store = home / FILE_NAME
        self._local = threading.local()
        self._all: weakref.WeakSet[_Held] = weakref.WeakSet()
        self._replaced: list[_Held] = []  # not closed: a caller may still iterate over a result
        self._guard = threading.Lock()
        if is_outdated(self.current):
            self.close()
            raise OutdatedStoreError(
                f"{self.store} has an older schema: start the supervisor, which migrates it."
            )

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._guard:
            for held in list(self._all):
                held.connection.close()
            self._all.clear()
            self._replaced.clear()
        self._local = threading.local()

    @property
    def current(self) -> sqlite3.Connection:
        """The connection of this thread."""
        return self._held().connection

    def _held(self) -> _Held:
        held: _Held | None = getattr(self._local, "held", None)
        self._local.held = held = self._newest(held)
        return held

    def _newest(self, held: _Held | None) -> _Held:
        """A connection, or another one if another file is where its file was."""
        if held is not None and not self._is_replaced(held):
            return held
        opened = self._open()
        if held is not None:
            with self._guard:
                self._replaced.append(held)
        return opened

    def _is_replaced(self, held: _Held) -> bool:
        now = _file(self._home)
        return not held.is_in_snapshot and now is not None and now != held.file

    def _open(self) -> _Held:
        file = _file(self._home)  # first: one that is replaced right now is found out next time
        held = _Held(open_read_only(self._home), file)
        with self._guard:
            self._all.add(held)
        return held

    def data_version(self) -> int:
        """A number that changes, for this thread, whenever something was committed."""
        return self._held().data_version()

    def version_probe(self) -> Callable[[], int]:
        """A query like `data_version` that any thread may run, one at a time."""
        held = self._open()

        def probe() -> int:
            nonlocal held
            held = self._newest(held)
            return held.data_version()

        return probe

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All queries of this thread within the `with` block see one state of the store."""
        held = self._held()
        held.connection.execute("BEGIN")
        held.is_in_snapshot = True
        try:
            yield
        finally:
            held.is_in_snapshot = False
            held.connection.execute("ROLLBACK")


class Queries:
    """A group of queries; those that fail raise StoreError, and nothing of the database.

    What cannot be understood though it was read, such as text that is no JSON, is damage, too.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    @property
    def _connection(self) -> sqlite3.Connection:
        return self._connections.current

    def __init_subclass__(cls) -> None:
        for name, value in list(vars(cls).items()):
            if inspect.isfunction(value) and not name.startswith("_"):
                is_generator = inspect.isgeneratorfunction(value)
                setattr(cls, name, (_explained_items if is_generator else _explained)(value))


def _explained(query: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(query)
    def run(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return query(self, *arguments, **named)
        except (sqlite3.Error, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise _as_store_error(error, self._connections.store) from error

    return run


def _explained_items(query: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(query)
    def run(self: Any, *arguments: Any, **named: Any) -> Iterator[Any]:
        try:
            yield from query(self, *arguments, **named)
        except (sqlite3.Error, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise _as_store_error(error, self._connections.store) from error

    return run


def _as_store_error(error: Exception, store: Path) -> StoreError:
    if isinstance(error, sqlite3.Error):
        return as_store_error(error, store)
    return damaged(store, f"a record cannot be read: {error}")


def _file(home: Path) -> int | None:
    """What tells the file of a store from others that were in its place; None if there is none."""
    try:
        return (home / FILE_NAME).stat().st_ino
    except OSError:
        return None
