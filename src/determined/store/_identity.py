"""Which home a store belongs to: the one that it is in, moved or not, or one that it is a copy of.

The store remembers its home's id, place (path, device and inode) and machine. It also remembers
its roots: the paths of the home under which paths in records were written.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import json
import os
import re
import sqlite3
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path

_SETTING = "home"
_FILE_NAME = "store.db"
_MACHINE_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_BELOW_A_HOME = re.compile(r"(.+)/(?:experiments/\d+/trials/\d+/\d+|inbox/[^/]+)")


class Standing(enum.Enum):
    """What a folder with a store is to the home that the store was written in."""

    HOME = "home"
    MOVED = "moved"  # the home itself, in another place
    COPY = "copy"  # the home itself is elsewhere, or may be


@dataclass(frozen=True)
class Identity:
    """A home, where it was last worked in, and the roots of paths in its records."""

    id: str
    path: str
    device: int
    inode: int
    machine: str
    roots: tuple[str, ...]

    @classmethod
    def of(cls, home: Path, identifier: str = "", roots: tuple[str, ...] = ()) -> Identity:
        """A home in its present place; one that has no id yet gets one."""
        status = home.stat()
        values = (str(home), status.st_dev, status.st_ino, machine_id())
        return cls(identifier or str(uuid.uuid4()), *values, roots=roots or (str(home),))

    def standing(self, home: Path) -> Standing:
        """What the folder `home`, in which this was found, is to this home."""
        if _are_different_machines(self.machine, machine_id()):
            return Standing.COPY
        if _leads_to(self.path, home):
            return Standing.HOME
        status = home.stat()
        if (status.st_dev, status.st_ino) == (self.device, self.inode):
            return Standing.COPY if _id_in(Path(self.path)) == self.id else Standing.MOVED
        is_moved = self.machine == machine_id() and _is_absent(self.path)
        return Standing.MOVED if is_moved else Standing.COPY

    def strays(self, home: Path) -> tuple[str, ...]:
        """The roots that do not lead to this folder: what is below them has to be looked for here.

        Roots that are other names of it, such as links, are not among them.
        """
        return tuple(root for root in self.roots if not _leads_to(root, home))

    def settled(self, home: Path) -> Identity:
        """The same home, after all paths below strays were rewritten."""
        there = [root for root in self.roots if _leads_to(root, home)]
        return replace(self, roots=tuple(dict.fromkeys([*there, str(home)])))


def read_identity(connection: sqlite3.Connection) -> Identity | None:
    """The home that a store belongs to; None in stores of earlier versions."""
    query = "SELECT value FROM setting WHERE name=?"
    row = connection.execute(query, (_SETTING,)).fetchone()
    if row is None:
        return None
    content = json.loads(row[0])
    return Identity(**{**content, "roots": tuple(content["roots"])})


def write_identity(connection: sqlite3.Connection, identity: Identity) -> None:
    """Record which home a store belongs to."""
    sql = "INSERT OR REPLACE INTO setting(name, value) VALUES (?, ?)"
    connection.execute(sql, (_SETTING, json.dumps(asdict(identity))))


def guess_identity(connection: sqlite3.Connection, home: Path) -> Identity:
    """The identity of a store that has none, from the paths in its records.

    If they lead to another home, this is a copy of it. If they lead nowhere, the home was moved
    or restored, and is taken for the home itself.
    """
    folders = (folder for (folder,) in connection.execute("SELECT folder FROM run"))
    found = {match[1] for folder in folders if (match := _BELOW_A_HOME.fullmatch(folder))}
    for root in sorted(found):
        other = Path(root)
        if not _leads_to(root, home) and (other / _FILE_NAME).exists():
            return Identity.of(other, _id_in(other) or "", roots=tuple(found))
    return Identity.of(home, roots=tuple(sorted({*found, str(home)})))


def is_from_another_machine(connection: sqlite3.Connection) -> bool:
    """Whether the last run of a store without identity was on a machine of another name."""
    row = connection.execute("SELECT host FROM run ORDER BY created DESC LIMIT 1").fetchone()
    return row is not None and row[0] not in ("", os.uname().nodename)


@functools.cache
def machine_id() -> str:
    """What tells this machine from others: the system's id of it, hashed, else its name."""
    for file in _MACHINE_FILES:
        try:
            text = Path(file).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            continue
        if text:
            return "id:" + hashlib.sha256(f"determined {text}".encode()).hexdigest()[:32]
    return f"name:{os.uname().nodename}"


def _are_different_machines(one: str, other: str) -> bool:
    """Whether two ids surely differ; names of machines, as of containers, may change."""
    return one != other and one.startswith("id:") and other.startswith("id:")


def _leads_to(path: str, home: Path) -> bool:
    try:
        return os.path.samefile(path, home)  # noqa: PTH121  # `path` is text from the store
    except OSError:
        return False


def _is_absent(path: str) -> bool:
    """Whether there is nothing; a disk that does not answer proves nothing."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _id_in(home: Path) -> str | None:
    """The id of the home in a folder; None if there is none, or it cannot be read."""
    try:
        connection = sqlite3.connect(f"{(home / _FILE_NAME).as_uri()}?mode=ro", uri=True)
    except (sqlite3.Error, ValueError):
        return None
    try:
        identity = read_identity(connection)
    except sqlite3.Error:
        return None
    finally:
        connection.close()
    return None if identity is None else identity.id
