"""Whether the kernel killed processes for lack of memory: only it knows who sent a SIGKILL."""

from __future__ import annotations

from pathlib import Path

_COUNTERS = Path("/proc/vmstat")


def count_kills() -> int:
    """How many processes it has killed for lack of memory since boot; 0 where that is unknown."""
    try:
        text = _COUNTERS.read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill":
            return int(number)
    return 0
