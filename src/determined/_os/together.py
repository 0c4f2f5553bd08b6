"""Processes that need each other: when one fails, or has long ended, the others are ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

_LOOK_SECONDS = 0.02
_GRACE_SECONDS = 10.0
_ALONE_SECONDS = 60.0


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
