"""Open the store's file: where it may be, who may read it, which version it has."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from determined._contracts.home import make_private
from determined.errors import StoreError, StoreVersionError
from determined.store._identity import read_identity
from determined.store._schema import MIGRATIONS
from determined.store.write.relocation import Relocation

FILE_NAME = "store.db"

_CLOUD_MOUNTS = "sshfs glusterfs ceph s3fs gcsfuse rclone blobfuse blobfuse2 goofys juicefs davfs"
_NETWORK = {
    *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "9p", "afs", "coda", "ceph"),
    *("lustre", "gpfs", "glusterfs", "beegfs", "beegfs_nodev", "orangefs", "pvfs2"),
    *(f"fuse.{name}" for name in _CLOUD_MOUNTS.split()),
}
_SIGNS_OF_DAMAGE = (
    *("malformed", "not a database", "no such table", "no such column", "Could not decode"),
    *("database corruption", "unsupported file format", "unsupported encoding"),
)
_PRAGMAS = """
PRAGMA busy_timeout=10000;
PRAGMA foreign_keys=ON;
PRAGMA temp_store=MEMORY;
PRAGMA trusted_schema=OFF;
"""


def prepare(home: Path) -> None:
    """Create the home, private to its owner, and an up-to-date store if there is none yet.

    Several processes may do this at once.
    """
    try:
        make_private(home, parents=True)
    except OSError as error:
        raise StoreError(
            f"Cannot make the home {home}: {error.strerror}. Set DET_HOME to a folder of your own."
        ) from error
    refuse_network(home)
    path = home / FILE_NAME
    try:
        if not path.exists():
            _refuse_to_forget(home)
            _create(path)
    except OSError as error:
        raise StoreError(
            f"Cannot write {path}: {error.strerror}. Set DET_HOME to a folder of your own."
        ) from error
    connection = _open(path, "rw")
    try:
        if version_of(connection) == 0:
            _refuse_to_forget(home)
            connection.execute("PRAGMA journal_mode=WAL")
            migrate(connection)
    except sqlite3.DatabaseError as error:
        raise as_store_error(error, path) from error
    finally:
        connection.close()


def _refuse_to_forget(home: Path) -> None:
    """Raise StoreError if a home with experiments would get an empty store."""
    with contextlib.suppress(OSError), os.scandir(home / "experiments") as entries:
        if any(entry.name.isdigit() for entry in entries):
            raise StoreError(
                f"{home / FILE_NAME} is gone or empty, but there are experiments in {home}. "
                "`det store rebuild` rebuilds it from their folders."
            )


def _create(path: Path) -> None:
    """Create an empty file, private to its owner, unless another process was quicker.

    Only SQLite opens the store itself: closing a file drops all locks that this process has on it,
    including those of SQLite's connections, whose files would then vanish while in use.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4()}")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


class StoreNotFoundError(StoreError):
    """Nothing was ever written here, or the store is just being created."""


def is_made(home: Path) -> bool:
    """Whether there is a store, even a damaged one or one of another version."""
    try:
        open_read_only(home).close()
    except StoreNotFoundError:
        return False
    except StoreError:  # reading it will report the error
        pass
    return True


def refuse_newer(home: Path) -> None:
    """Raise StoreVersionError if a newer version of determined made the store."""
    try:
        open_read_only(home).close()
    except StoreVersionError:
        raise
    except StoreError:
        return


def open_writable(home: Path) -> sqlite3.Connection:
    """Open a connection that may write; a commit returns when it is on disk."""
    return _opened(home, "rw", "PRAGMA synchronous=FULL")


def open_read_only(home: Path) -> sqlite3.Connection:
    """Open a read-only connection; it may be handed from thread to thread."""
    missing = f"There is no store in {home} yet: create an experiment, or set DET_HOME."
    if not (home / FILE_NAME).exists():
        raise StoreNotFoundError(missing)
    connection = _opened(home, "ro", "")
    try:
        if version_of(connection) == 0:  # the disk was full, or its creator was killed
            raise StoreNotFoundError(missing)
        relocation = Relocation.of(read_identity(connection), home)
        if relocation is not None:
            relocation.translate(connection)
        connection.execute("PRAGMA query_only=ON")
    except sqlite3.DatabaseError as error:
        connection.close()
        raise as_store_error(error, home / FILE_NAME) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _opened(home: Path, mode: str, pragmas: str) -> sqlite3.Connection:
    refuse_network(home)
    path = home / FILE_NAME
    try:
        connection = _open(path, mode)
        connection.executescript(pragmas)
        version = version_of(connection)
    except sqlite3.DatabaseError as error:
        raise as_store_error(error, path) from error
    if version > len(MIGRATIONS):
        connection.close()
        raise StoreVersionError(
            f"{path} has schema {version}; this version of determined knows up to "
            f"{len(MIGRATIONS)}. Install the newer version, or set DET_HOME to another home."
        )
    return connection


def _open(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=512
    )
    try:
        connection.executescript(_PRAGMAS)
    except BaseException:
        connection.close()
        raise
    return connection


def version_of(connection: sqlite3.Connection) -> int:
    """The number of migrations applied to the store."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def is_outdated(connection: sqlite3.Connection) -> bool:
    """Whether the store must be migrated before this version can use it."""
    return version_of(connection) < len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Migrate the store to the newest version; each step is atomic."""
    for number, script in enumerate(migrations, start=1):
        connection.execute("BEGIN EXCLUSIVE")
        try:
            if version_of(connection) < number:
                for statement in _statements(script):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={number}")
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # on a full disk SQLite has done it already
                connection.execute("ROLLBACK")
            raise


def _statements(script: str) -> list[str]:
    """Single statements: `executescript` would commit the transaction around them."""
    statements, pending = [], ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements


def damaged(path: Path, what: str) -> StoreError:
    """The error that says what is damaged, what is not lost, and what to do."""
    return StoreError(
        f"{path} is damaged ({what}). Runs go on, and nothing of them is lost: their "
        "configurations, reports and checkpoints are in files of their own. `det store rebuild` "
        "makes the records anew from these and from what can still be read; `det store check` "
        "says more."
    )


def as_store_error(error: sqlite3.Error, path: Path) -> StoreError:
    """Convert an error of the database to a StoreError that says what to do next."""
    text = str(error)
    if "locked" in text:
        return StoreError(f"{path} stays locked by another process: {text}. Try again.")
    if any(sign in text for sign in _SIGNS_OF_DAMAGE):
        return damaged(path, text)
    if "readonly" in text or "unable to open" in text:
        return StoreError(
            f"{path} cannot be written: {text}. Is it on a read-only disk, or somebody else's? Set "
            "DET_HOME to a folder of yours."
        )
    if "disk is full" in text:
        return StoreError(
            f"{path} cannot be written: its disk is full. Free some space and try again."
        )
    return StoreError(f"{path}: {text}.")


def refuse_network(home: Path) -> None:
    """Raise StoreError on file systems whose locks and memory maps cannot be trusted."""
    kind = _filesystem(home.absolute())
    if kind in _NETWORK:
        raise StoreError(
            f"The store cannot live on a network file system ({home} is {kind}): set DET_HOME to "
            "a folder on a local disk. Checkpoints may stay where they are."
        )


def _filesystem(path: Path) -> str:
    if not sys.platform.startswith("linux"):
        return ""  # elsewhere there is no cheap way to ask
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    return filesystem_of(Path(os.path.realpath(path)), mounts)


def filesystem_of(path: Path, mountinfo: str) -> str:
    """The type of the file system that holds `path`, from the kernel's mount table."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = Path(fields[4].replace("\\040", " "))
        if (point == path or point in path.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), right.split()[0]
    return kind
