"""Waiting for something to happen elsewhere: a condition and a generous deadline, never a pause."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_SECONDS = 60.0


def eventually(condition: Callable[[], object], what: str = "it") -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)
