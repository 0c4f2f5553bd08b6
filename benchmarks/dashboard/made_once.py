"""What takes long to make is made once, and only a finished one is used again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path


def make_once(folder: Path, make: Callable[[Path], object]) -> None:
    """Fill a folder, unless that was done before; what is left of an interrupted time goes."""
    mark = folder.with_name(f"{folder.name}.made")
    if mark.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    make(folder)
    mark.touch()
