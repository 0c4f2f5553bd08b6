"""The inbox of a home: one folder for each training process that was started by hand.

    journal     what it says; locked for as long as it lives
    log         what it logs, with `log.times`
    control     what it was told when it asked for its ids, if it did
    adopted     a supervisor knows of it

The process makes the folder and only appends; the supervisor reads, and takes the folder away when
the journal is over. Names sort by time, so that older processes come first.
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
    """Paths of one folder of an inbox, and whether its process lives."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.journal = self.path / "journal"
        self.log = self.path / "log"
        self.log_times = self.path / "log.times"
        self.boot_id = ""
        """Of the process that made it; "" where locks tell nothing."""
        self._adopted = self.path / "adopted"

    def __repr__(self) -> str:
        return f"InboxItem({str(self.path)!r})"

    @classmethod
    def create(cls, home: Path) -> tuple[InboxItem, JournalWriter]:
        """Make the folder of this process and open its journal; JournalError if that fails.

        Nobody sees it before the journal is there and locked.
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
        """How many bytes its journal has; 0 if there is none."""
        with contextlib.suppress(OSError):
            return self.journal.stat().st_size
        return 0

    @property
    def is_held(self) -> bool:
        """Whether a process of this machine holds it. Of other machines this may say nothing."""
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
        """Whether a supervisor has given it ids before."""
        return self._adopted.exists()

    def mark_adopted(self) -> None:
        with contextlib.suppress(OSError):  # it may be gone
            self._adopted.touch(mode=0o600)

    def forget_adoption(self) -> None:
        """Let a supervisor take it in as if it had never seen it."""
        self._adopted.unlink(missing_ok=True)


def item_names(home: Path) -> list[str]:
    """The folders in the inbox of a home, oldest first; anything else there is not ours."""
    try:
        with os.scandir(home / FOLDER_NAME) as entries:
            return sorted(entry.name for entry in entries if _NAME.fullmatch(entry.name))
    except OSError:
        return []


def boot_id() -> str:
    """What tells this machine, since it was switched on, from all others; "" if it cannot say."""
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
