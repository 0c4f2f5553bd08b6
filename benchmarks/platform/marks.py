"""What `scripts/net.py` writes down while it trains."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Mark(NamedTuple):
    """A batch that was trained: when, at how much processor time and memory of the process."""

    run: int
    batch: int
    time: float
    cpu_seconds: float = 0.0
    megabytes: float = 0.0


def read_marks(path: Path) -> list[Mark]:
    """Return all marks; the last line may still be half written."""
    words = (line.split() for line in path.read_text().splitlines())
    return [
        Mark(int(w[0]), int(w[1]), *map(float, w[2:])) for w in words if len(w) == len(Mark._fields)
    ]
