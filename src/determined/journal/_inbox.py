"""The inbox of a home: one folder for each training process that a user started.

    journal     its reports; locked while the process is alive
    log         its log, with `log.times`
    control     the ids it got from the supervisor, if it asked for them
    adopted     a marker that a supervisor knows about it

The process creates the folder and only appends; the supervisor reads, and removes the folder when
the journal is complete. Names sort by time, so older processes come first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
import uuid
import weakref
from pathlib import Path

from determined.errors import JournalError
from determined.journal._file import JournalWriter

FOLDER_NAME = "inbox"
_NAME = re.compile(r"\d{20}-[0-9a-f]{12}")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class InboxItem:
    """The paths in one inbox folder, and whether its process is alive."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.journal = self.path / "journal"
        self.log = self.path / "log"
        self.log_times = self.path / "log.times"
        self.boot_id = ""
        """The boot id of the process that created it; "" if locks tell nothing."""
        self._adopted = self.path / "adopted"

    def __repr__(self) -> str:
        return f"InboxItem({str(self.path)!r})"

    @classmethod
    def create(cls, home: Path) -> tuple[InboxItem, JournalWriter]:
        """Create the folder of this process and open its journal; JournalError if that fails.

        It becomes visible only when the journal exists and is locked.
        """
        inbox = home / FOLDER_NAME
        item = cls(inbox / f"{time.time_ns():020d}-{uuid.uuid4().hex[:12]}")
        draft = cls(item.path.with_name(f".{item.path.name}"))
        try:
            inbox.mkdir(mode=0o700, exist_ok=True)
            draft.path.mkdir(mode=0o700)
            writer = JournalWriter(draft.journal)
            _open.add(writer)
            item.boot_id = boot_id() if writer.hold() else ""
            draft.path.rename(item.path)
        except OSError as error:
            raise JournalError(f"Cannot write in {inbox}: {error.strerror}.") from error
        writer.path = item.journal
        return item, writer

    @property
    def size(self) -> int:
        """The size of its journal in bytes; 0 if there is none."""
        with contextlib.suppress(OSError):
            return self.journal.stat().st_size
        return 0

    @property
    def is_held(self) -> bool:
        """Whether a process on this machine holds it. Other machines may not be seen."""
        try:
            descriptor = os.open(self.journal, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    @property
    def is_adopted(self) -> bool:
        """Whether a supervisor has already given it ids."""
        return self._adopted.exists()

    def mark_adopted(self) -> None:
        with contextlib.suppress(OSError):  # it may be gone
            self._adopted.touch(mode=0o600)

    def forget_adoption(self) -> None:
        """Let a supervisor adopt it as if for the first time."""
        self._adopted.unlink(missing_ok=True)


def item_names(home: Path) -> list[str]:
    """The folders in the inbox of a home, oldest first; anything else there is ignored."""
    try:
        with os.scandir(home / FOLDER_NAME) as entries:
            return sorted(entry.name for entry in entries if _NAME.fullmatch(entry.name))
    except OSError:
        return []


def boot_id() -> str:
    """An id of this machine that is unique for each boot; "" if there is none."""
    with contextlib.suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return ""


# A forked child (a loader worker, say) must not hold the lock when its parent dies.
_open: weakref.WeakSet[JournalWriter] = weakref.WeakSet()


def _forget_in_child() -> None:
    for writer in list(_open):
        writer.close()
    _open.clear()


os.register_at_fork(after_in_child=_forget_in_child)
