"""Named points where a test can kill this process, to prove that a crash there is harmless."""

from __future__ import annotations

import os
import signal


def _read_armed() -> tuple[str, int]:
    name, _, hit = os.environ.get("DET_TEST_CRASH_POINT", "").partition(":")
    return name, int(hit or 1)


_armed, _hits_left = _read_armed()


def reach(name: str) -> None:
    """Do nothing, unless `DET_TEST_CRASH_POINT=name[:n]` is set: then die at the n-th hit."""
    global _hits_left
    if name != _armed:
        return
    _hits_left -= 1
    if _hits_left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
