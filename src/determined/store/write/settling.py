"""Bring a store in line with the place of its home, before anything is done with its records."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

from determined.store._identity import (
    Identity,
    Standing,
    guess_identity,
    is_from_another_machine,
    read_identity,
    write_identity,
)
from determined.store._records import EVENTS
from determined.store.write.ownership import mark_foreign
from determined.store.write.relocation import Relocation


def settle(connection: sqlite3.Connection, home: Path) -> Standing:
    """Rewrite paths that do not lead to the home, and record where it is now; one transaction.

    A home of an earlier version gets its id. A copy stays one, but its paths lead into it.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        standing = settle_within(connection, home.absolute())
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    return standing


def settle_within(connection: sqlite3.Connection, home: Path) -> Standing:
    """The same, within a transaction."""
    known = read_identity(connection)
    identity = known or guess_identity(connection, home)
    standing = identity.standing(home)
    relocation = Relocation.of(identity, home)
    if relocation is not None:
        relocation.rewrite(connection)
        if known is None and is_from_another_machine(connection):
            mark_foreign(connection, home)
    settled = identity.settled(home)
    if standing is not Standing.COPY:
        here = Identity.of(home, identity.id, settled.roots)
        settled = here if standing is Standing.MOVED else replace(here, path=identity.path)
    if standing is Standing.MOVED:
        _note(connection, f"the home was moved from {identity.path} to {home}")
    if settled != known:
        write_identity(connection, settled)
    return standing


def adopt(connection: sqlite3.Connection, home: Path) -> int:
    """Make a copy a home of its own, within a transaction.

    It gets an id of its own; checkpoints outside it are marked as another home's. Returns how many
    those are.
    """
    before = read_identity(connection)
    foreign = mark_foreign(connection, home)
    write_identity(connection, Identity.of(home.absolute()))
    if before is not None:
        _note(connection, f"this copy of the home in {before.path} became a home of its own")
    return foreign


def remember_home(connection: sqlite3.Connection, root: Path) -> None:
    """Record where a home was, according to its folders, if the store does not know."""
    if read_identity(connection) is None:
        place = Identity.of(root) if root.exists() else replace(Identity.of(Path("/")), inode=0)
        write_identity(connection, replace(place, path=str(root), roots=(str(root),)))


def _note(connection: sqlite3.Connection, text: str) -> None:
    values = {"time": time.time(), "kind": "home", "level": "info", "text": text, "details": {}}
    EVENTS.insert(connection, values)
