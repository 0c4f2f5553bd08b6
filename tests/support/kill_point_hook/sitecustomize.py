"""Ends this process at a named event. Only processes under test have this folder on their path.

`DET_TEST_KILL_POINTS` is a folder with a file for each kill to come: JSON of `process`, a word of
the command line; `event`, a pattern of events; `count`, which of them; `after`, whether to wait for
the next event of any kind. Whoever removes the file dies, so that each kill happens once.

Events are SQL statements (`sql COMMIT`), writes to journals (`write .../journal-1`), and audit
events with their arguments (`os.rename .../a .../b`). A write is cut in half.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

_AUDITED = ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.posix_spawn")
_real_write = os.write


class KillPoint:
    """One that waits for its event."""

    def __init__(self, file: Path, event: str, count: int, after: bool) -> None:
        self._file = file
        self._event = re.compile(event)
        self._left = count
        self._after = after

    def is_due(self, event: str) -> bool:
        if self._left == 0:
            return True
        if self._event.search(event):
            self._left -= 1
            return self._left == 0 and not self._after
        return False

    def claim(self) -> bool:
        """Whether nobody else has died of it."""
        try:
            self._file.unlink()
        except FileNotFoundError:
            return False
        return True


class Watch:
    """Sees the events of this process."""

    def __init__(self, kill_points: list[KillPoint]) -> None:
        self._kill_points = kill_points
        self._is_busy = False

    def see(self, event: str, descriptor: int | None = None, data: bytes = b"") -> None:
        if self._is_busy:
            return
        self._is_busy = True
        try:
            for point in [point for point in self._kill_points if point.is_due(event)]:
                self._kill_points.remove(point)
                if point.claim():
                    if descriptor is not None:
                        _real_write(descriptor, data[: len(data) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
        finally:
            self._is_busy = False

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _AUDITED or self._is_busy:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & os.O_CREAT):
            return
        words = (os.fsdecode(word) for word in arguments if isinstance(word, (str, bytes, Path)))
        self.see(" ".join((event, *words)))

    def write(self, descriptor: int, data: Any) -> int:
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
            if "/journal-" in path:
                self.see(f"write {path}", descriptor, bytes(data))
        return _real_write(descriptor, data)

    def sql(self, statement: str) -> None:
        self.see(f"sql {statement}")

    def begin(self) -> None:
        import sqlite3

        connect = sqlite3.connect

        def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*arguments, **options)
            connection.set_trace_callback(self.sql)
            return connection

        sqlite3.connect = traced  # type: ignore[assignment]  # the same with an eye on it
        os.write = self.write  # likewise
        sys.addaudithook(self.audit)


def _armed(folder: Path) -> list[KillPoint]:
    found = []
    for file in sorted(folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            wanted = json.loads(file.read_bytes())
            if any(wanted["process"] in word for word in sys.orig_argv):
                found.append(KillPoint(file, wanted["event"], wanted["count"], wanted["after"]))
    return found


if "DET_TEST_KILL_POINTS" in os.environ and (
    kill_points := _armed(Path(os.environ["DET_TEST_KILL_POINTS"]))
):
    Watch(kill_points).begin()
