"""Whether the kernel had to kill processes to have memory: only it knows who sent a SIGKILL."""

from __future__ import annotations

from pathlib import Path

_COUNTERS = Path("/proc/vmstat")


def count_kills() -> int:
    """How many processes it has killed for memory since it started; 0 where it does not say."""
    try:
        text = _COUNTERS.read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill":
            return int(number)
    return 0
