"""What a run may leave behind in its process: nothing."""

from __future__ import annotations

import dataclasses
import gc
import threading
import time
from pathlib import Path

import psutil


@dataclasses.dataclass(frozen=True)
class Holdings:
    """The threads, open files and child processes of this process."""

    threads: frozenset[str]
    files: frozenset[str]
    children: frozenset[int]


def holdings() -> Holdings:
    """Take stock. Children that are no one's fault, such as the server of workers, count too."""
    me = psutil.Process()
    return Holdings(
        frozenset(f"{t.name} {t.native_id}" for t in threading.enumerate()),
        frozenset(_open_files()),
        frozenset(child.pid for child in me.children() if child.status() != "zombie"),
    )


def _open_files() -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(f"{entry.name} {entry.readlink()}")
        except FileNotFoundError:  # the directory that is being read
            continue
    return [name for name in found if not name.endswith("/fd")]


def assert_nothing_more_than(before: Holdings, seconds: float = 10) -> None:
    """Wait a little for threads that are on their way out; then complain."""
    deadline = time.monotonic() + seconds
    while True:
        gc.collect()  # a traceback and the frames in it hold each other
        now = holdings()
        more = (
            now.threads - before.threads,
            now.files - before.files,
            now.children - before.children,
        )
        if not any(more):
            return
        assert time.monotonic() < deadline, f"left behind: {more}"
        time.sleep(0.02)
