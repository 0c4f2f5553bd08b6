"""Copy what can still be read of a damaged store, row by row, into a new one."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from determined.store._connection import FILE_NAME
from determined.store._records import BY_NAME

_FILES = ("", "-wal", "-shm")
_WITH_FIRST_ROWS = ("project", "workspace")


def set_aside(home: Path) -> Path | None:
    """Move the store aside, whatever its state; return its new path, None if there is none.

    Safe to repeat: if an earlier attempt was interrupted, the store that it moved is found.
    """
    store = home / FILE_NAME
    if store.exists():
        moment = time.strftime("%Y%m%dT%H%M%S")
        aside = _unused(home / f"{FILE_NAME}.damaged-{moment}")
    else:
        earlier = (
            p for p in home.glob(f"{FILE_NAME}.damaged-*") if not p.name.endswith(_FILES[1:])
        )
        found = max(earlier, default=None, key=lambda path: path.name)
        if found is None:
            return None
        aside = found
    for suffix in _FILES:  # without the store itself, the files left beside it do no harm
        with contextlib.suppress(FileNotFoundError):
            store.with_name(FILE_NAME + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _unused(path: Path) -> Path:
    candidates = (path.with_name(f"{path.name}{suffix}") for suffix in ("", *"abcdefghijklmnop"))
    return next(candidate for candidate in candidates if not candidate.exists())


def salvage(new: sqlite3.Connection, damaged: Path) -> dict[str, str]:
    """Copy every readable row; return what went wrong, by table.

    Each table is read from both ends, so that a bad page costs only the rows on it.
    """
    wrong: dict[str, str] = {}
    for table in _WITH_FIRST_ROWS:
        new.execute(f"DELETE FROM {table}")
    with contextlib.closing(sqlite3.connect(f"{damaged.as_uri()}?mode=ro", uri=True)) as old:
        for table, definition in _tables(new):
            try:
                _copy(old, new, table, definition)
            except sqlite3.DatabaseError as error:
                wrong[table] = str(error)
        with contextlib.suppress(sqlite3.DatabaseError):
            for name, number in old.execute("SELECT name, seq FROM sqlite_sequence"):
                raise_sequence(new, name, number)
    new.execute(
        "INSERT OR IGNORE INTO workspace(id, name, owner, created) "
        "VALUES (1, 'Uncategorized', '', 0)"
    )
    new.execute(
        "INSERT OR IGNORE INTO project(id, workspace_id, name, owner, created) "
        "VALUES (1, 1, 'Uncategorized', '', 0)"
    )
    return wrong


def raise_sequence(connection: sqlite3.Connection, table: str, number: int) -> None:
    """Ensure that new ids of a table start after a number, at least."""
    changed = connection.execute(
        "UPDATE sqlite_sequence SET seq=max(seq, ?) WHERE name=?", (number, table)
    ).rowcount
    if not changed:
        connection.execute("INSERT INTO sqlite_sequence(name, seq) VALUES (?,?)", (table, number))


def _tables(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    query = "SELECT name, sql FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%'"
    return connection.execute(query).fetchall()


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, table: str, definition: str) -> None:
    columns = [name for name in _columns(new, table) if name in _columns(old, table)]
    if not columns:
        raise sqlite3.DatabaseError("no such table")
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    insert = f"INSERT OR IGNORE INTO {table}({names}) VALUES ({marks})"
    order = _key(new, table) if "WITHOUT ROWID" in definition else ["rowid"]
    select = f"SELECT {names} FROM {table} ORDER BY "
    try:
        new.executemany(insert, _readable(old, table, columns, select + ", ".join(order)))
    except sqlite3.DatabaseError:
        backwards = ", ".join(f"{column} DESC" for column in order)
        with contextlib.suppress(sqlite3.DatabaseError):
            new.executemany(insert, _readable(old, table, columns, select + backwards))
        raise


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _key(connection: sqlite3.Connection, table: str) -> list[str]:
    rows = [row for row in connection.execute(f"PRAGMA table_info({table})") if row[5]]
    return [row[1] for row in sorted(rows, key=lambda row: int(row[5]))]


def _readable(
    old: sqlite3.Connection, table: str, columns: list[str], select: str
) -> Iterator[tuple[object, ...]]:
    """Rows whose values can be read: damage may leave invalid rows."""
    known = BY_NAME.get(table)
    for row in old.execute(select):
        if known is None or known.is_readable(dict(zip(columns, row, strict=True))):
            yield row
