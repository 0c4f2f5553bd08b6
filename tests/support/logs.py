"""Logs of runs without what differs from run to run."""

from __future__ import annotations

import re
from pathlib import Path


def without_places(text: str, folder: Path) -> str:
    """Return a log with the folder of its run, addresses and process ids left out."""
    text = text.replace(str(folder), "RUN")
    text = re.sub(r"0x[0-9a-f]+", "ADDRESS", text)
    return re.sub(r"\[\d+\]", "[PID]", text)
