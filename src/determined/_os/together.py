"""Processes with their output in files, and several that need each other.

When one of those fails, or has long ended, the others are ended.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_LOOK_SECONDS = 0.02
_GRACE_SECONDS = 10.0
_ALONE_SECONDS = 60.0
_SHOWN = 3000


@dataclass(frozen=True)
class Command:
    """A process to be started, and the file that takes its output."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    folder: Path
    log: Path

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, without a keyboard."""
        with self.log.open("wb") as file:
            return subprocess.Popen(
                self.argv,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def last_output(self) -> str:
        """Return the end of what it wrote, to be shown; empty before its start."""
        return self.log.read_text(errors="replace")[-_SHOWN:] if self.log.exists() else ""


def run_together(commands: Sequence[Command]) -> list[int]:
    """Start all and wait for them; returns their exit codes. None is left if one cannot start."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.extend(command.start() for command in commands)
    except BaseException:
        for process in processes:
            process.kill()
            process.wait()
        raise
    return wait_together(processes)


def wait_together(
    processes: Sequence[subprocess.Popen[bytes]], alone_seconds: float = _ALONE_SECONDS
) -> list[int]:
    """Wait for all; return their exit codes. None is left, whatever ends the wait.

    When one has ended well, the others have `alone_seconds` left: they may wait for it in vain.
    """
    deadline = None
    try:
        while None in (codes := [process.poll() for process in processes]):
            if any(codes):
                break
            if deadline is None and 0 in codes:
                deadline = time.monotonic() + alone_seconds
            if deadline is not None and time.monotonic() > deadline:
                break
            time.sleep(_LOOK_SECONDS)
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return [process.returncode for process in processes]
