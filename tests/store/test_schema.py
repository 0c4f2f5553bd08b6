"""Stores of earlier schemas open, are whole and read the same; migrations happen wholly or not."""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from determined.store import Writer
from determined.store._connection import migrate, version_of
from determined.store._maintenance import check
from determined.store._schema import MIGRATIONS
from tests.support import old_homes
from tests.support.lab import Lab, lab

__all__ = ["lab"]

# The statements of each schema that there is a file of.
_DIGESTS = {
    1: "e9b081915a23e4831f8446ed07928af848da2986594366eff3cb3ab51cdd8630",
    2: "d409b5f0e2f1b382b03a6ed278b7fac681232df09861340901dba0aeb118266c",
    3: "a46071d91932b5717008c735afc25a61d781b6787be76157dbbd2f1a90ee9f1c",
    4: "ac9ff2d2d68245da2431bad06930d681a96e44762d5152493a26ac6394f2d316",
    5: "a0f7d179b9fe8f18596873bd301650e09c11f1d0c22ea31a078a4c02c0086f86",
}

# Of an invented next version: the process is killed between two of its statements.
_KILLED = """
import os, signal, sqlite3, sys
from determined.store._connection import migrate
from determined.store._schema import MIGRATIONS
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.create_function("die", 0, lambda: os.kill(os.getpid(), signal.SIGKILL))
later = "CREATE TABLE later(a);\\nDELETE FROM trial;\\nINSERT INTO later SELECT die();\\n"
migrate(connection, (*MIGRATIONS, later))
"""


def includes(found: Any, wanted: Any) -> bool:
    """Whether all that was written is read; later versions may tell more of it."""
    if isinstance(wanted, dict):
        return all(key in found and includes(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(includes, found, wanted))
    return repr(found) == repr(wanted)  # NaN is NaN


@pytest.mark.parametrize("version", old_homes.versions())
def test_an_old_store_is_whole_and_reads_the_same(version: int, tmp_path: Path) -> None:
    home = tmp_path / "home"
    old_homes.unpack(version, home)
    Writer(home).close()
    assert check(home) == []
    found, wanted = old_homes.reading(home), old_homes.expected(version, home)
    for part, content in wanted.items():
        assert includes(found[part], content), part


@pytest.mark.multiprocess
@pytest.mark.parametrize("version", old_homes.versions())
def test_an_old_home_is_worked_in_by_todays_platform(version: int, lab: Lab) -> None:
    old_homes.unpack(version, lab.home.path)
    ended = lab.wait(lab.create("", searcher={"name": "single", "metric": "loss"}))
    assert (ended.id, ended.state) == (2, "COMPLETED")
    assert lab.experiment(1).labels == ["old", "kept"]


@pytest.mark.parametrize("version", sorted(_DIGESTS))
def test_a_schema_that_was_written_is_never_edited(version: int) -> None:
    found = hashlib.sha256(MIGRATIONS[version - 1].encode()).hexdigest()
    assert found == _DIGESTS[version], "Add another entry to MIGRATIONS instead."
    assert version in old_homes.versions()


def test_a_migration_that_is_killed_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    home = tmp_path / "home"
    old_homes.unpack(1, home)
    Writer(home).close()
    before = old_homes.reading(home)
    store = home / "store.db"
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(store)], check=False)
    assert killed.returncode == -signal.SIGKILL
    connection = sqlite3.connect(store, isolation_level=None)
    assert version_of(connection) == len(MIGRATIONS)
    connection.close()
    assert check(home) == []
    assert old_homes.reading(home) == before


def test_the_step_after_a_killed_one_is_made_whole(tmp_path: Path) -> None:
    home = tmp_path / "home"
    old_homes.unpack(1, home)
    store = home / "store.db"
    subprocess.run([sys.executable, "-c", _KILLED, str(store)], check=False)
    connection = sqlite3.connect(store, isolation_level=None)
    migrate(connection, (*MIGRATIONS, "CREATE TABLE later(a);\nINSERT INTO later VALUES (7);"))
    assert version_of(connection) == len(MIGRATIONS) + 1
    assert connection.execute("SELECT a FROM later").fetchall() == [(7,)]
    connection.close()
