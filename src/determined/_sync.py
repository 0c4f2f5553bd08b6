"""Waiting for the disk."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Return when a file's content, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
