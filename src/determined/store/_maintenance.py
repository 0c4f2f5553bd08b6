"""Maintain the store: integrity checks, size, backups."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from determined.errors import StoreError
from determined.store._connection import FILE_NAME, as_store_error, damaged, open_read_only


def check(home: Path) -> list[str]:
    """Return what is wrong with the store, in sentences; nothing if it is intact."""
    try:
        connection = open_read_only(home)
    except StoreError as error:
        return [str(error)]
    try:
        wrong = [
            f"{FILE_NAME}: {text}"
            for (text,) in connection.execute("PRAGMA integrity_check(20)")
            if text != "ok"
        ]
        for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
            wrong.append(f"{FILE_NAME}: row {row} of {table} names a missing {parent}.")
        return wrong
    except sqlite3.DatabaseError as error:
        return [str(as_store_error(error, home / FILE_NAME))]
    finally:
        connection.close()


def find_damage(home: Path) -> StoreError | None:
    """The error to show if the store is damaged; None if it is intact, or there is none."""
    path = home / FILE_NAME
    faults = check(home) if path.exists() else []
    if not faults:
        return None
    first = faults[0]
    return StoreError(first) if " is damaged (" in first else damaged(path, first)


def backup(home: Path, target: Path) -> None:
    """Copy the store to the file `target` while others read and write it."""
    if target.exists():
        raise StoreError(f"{target} exists already: name a file that does not.")
    source = open_read_only(home)
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        copy = sqlite3.connect(target)
        try:
            source.backup(copy)
        finally:
            copy.close()
    except (OSError, sqlite3.Error) as error:
        target.unlink(missing_ok=True)
        raise StoreError(f"Cannot write the backup {target}: {error}.") from error
    finally:
        source.close()
