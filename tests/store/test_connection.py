"""Where the store may live, who may read it, and stores of other versions."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from determined.errors import StoreError, StoreVersionError
from determined.store import Reader, Writer, backup, check, send_command
from determined.store._connection import filesystem_of, migrate, version_of
from determined.store._schema import MIGRATIONS
from tests.store.homes import Home, report

_MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:30 / /home rw - nfs4 server:/home rw
31 30 8:2 / /home/me/my\\040disk rw - xfs /dev/sdb rw
32 22 0:40 / /cloud rw - fuse.s3fs s3fs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/tmp/x", "ext4"),
        ("/home/me", "nfs4"),
        ("/home/me/my disk/det", "xfs"),
        ("/cloud/a", "fuse.s3fs"),
        ("/homes", "ext4"),
    ],
)
def test_the_mount_above_a_path_counts(path: str, kind: str) -> None:
    assert filesystem_of(Path(path), _MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_network_file_systems_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("determined.store._connection._filesystem", lambda _: kind)
    for open_it in (Writer, Reader, lambda home: send_command(home, "x", {})):
        (tmp_path / "store.db").touch()
        with pytest.raises(StoreError, match="DET_HOME") as failure:
            open_it(tmp_path)
        assert "\n" not in str(failure.value)
        assert kind in str(failure.value)


def test_only_the_owner_may_read(home: Home) -> None:
    home.ingest(home.new_run(home.new_trial()), report(1, a=1.0))
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    for file in home.path.glob("store*"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match=r"Cannot make the home .* DET_HOME"):
        Writer(tmp_path / "home")


def test_a_file_in_place_of_the_home_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with pytest.raises(StoreError, match="Cannot make the home"):
        Writer(tmp_path / "home")


def test_reading_needs_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no store"):
        Reader(tmp_path)


def test_a_newer_schema_is_named(home: Home) -> None:
    home.close()
    connection = sqlite3.connect(home.path / "store.db")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    for open_it in (Writer, Reader, lambda path: send_command(path, "x", {})):
        with pytest.raises(StoreVersionError, match="schema 99.*Install the newer version"):
            open_it(home.path)
    connection = sqlite3.connect(home.path / "store.db")
    connection.execute(f"PRAGMA user_version={len(MIGRATIONS)}")
    connection.close()


def test_an_older_store_is_migrated_and_keeps_its_rows(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    migrate(connection)
    connection.execute("INSERT INTO workspace(name, owner, created) VALUES ('mine', 'me', 1)")
    later = (*MIGRATIONS, "ALTER TABLE workspace ADD COLUMN color TEXT DEFAULT 'blue';")
    migrate(connection, later)
    migrate(connection, later)
    assert version_of(connection) == len(later)
    row = connection.execute("SELECT owner, color FROM workspace WHERE name='mine'").fetchone()
    assert row == ("me", "blue")
    connection.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    migrate(connection)
    broken = (*MIGRATIONS, "CREATE TABLE new(a);\nCREATE TABLE nonsense(;")
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, broken)
    assert version_of(connection) == len(MIGRATIONS)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
    assert "new" not in names
    connection.close()


def test_clients_leave_the_migration_to_the_supervisor(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = (*MIGRATIONS, "CREATE TABLE later(a);")
    monkeypatch.setattr("determined.store._connection.MIGRATIONS", later)
    with pytest.raises(StoreVersionError, match="start the supervisor"):
        Reader(home.path)
    with pytest.raises(StoreVersionError, match="start the supervisor"):
        send_command(home.path, "x", {})


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"not a database " * 1000)
    with pytest.raises(StoreError, match="is damaged"):
        Writer(tmp_path)
    with pytest.raises(StoreError, match="det store check"):
        Reader(tmp_path)
    assert "is damaged" in check(tmp_path)[0]


def test_check_finds_a_changed_page(home: Home) -> None:
    run = home.new_run(home.new_trial())
    home.ingest(run, *(report(step, text="x" * 200) for step in range(500)))
    assert check(home.path) == []
    home.close()
    connection = sqlite3.connect(home.path / "store.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray((home.path / "store.db").read_bytes())
    for page in range(40, 60):
        data[page * 4096 : page * 4096 + 64] = bytes(64)
    (home.path / "store.db").write_bytes(data)
    assert check(home.path) != []


def test_a_backup_is_a_whole_store(home: Home, tmp_path: Path) -> None:
    trial = home.new_trial()
    home.ingest(home.new_run(trial), report(1, a=1.0))
    (tmp_path / "copy").mkdir()
    backup(home.path, tmp_path / "copy" / "store.db")
    home.ingest(home.new_run(trial, 1), report(2, a=1.0))
    copy = Reader(tmp_path / "copy")
    assert [r.steps_completed for r in copy.metrics.reports(trial.id)] == [1]
    copy.close()
    assert check(tmp_path / "copy") == []
    with pytest.raises(StoreError, match="exists already"):
        backup(home.path, tmp_path / "copy" / "store.db")


_VISITOR = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT * FROM trial")
connection.close()
"""


def test_a_command_leaves_the_locks_of_this_process_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with contextlib.closing(Writer(home)):
        pass
    reader = Reader(home)
    reader.experiments()
    send_command(home, "pause", {})
    # The last process to leave removes the log: it must see that this one still reads.
    command = [sys.executable, "-c", _VISITOR, str(home / "store.db")]
    subprocess.run(command, check=True, timeout=60)
    assert (home / "store.db-wal").exists()
    reader.close()


def test_a_store_that_was_never_filled_is_no_old_one(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()  # all that a full disk had room for
    with pytest.raises(StoreError, match="no store") as caught:
        Reader(tmp_path)
    assert not isinstance(caught.value, StoreVersionError)
    Writer(tmp_path).close()
    Reader(tmp_path).close()
