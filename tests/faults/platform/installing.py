"""The library in a folder of its own, as an installer puts it there."""

from __future__ import annotations

import shutil
from pathlib import Path

import determined


def install(folder: Path, version: str) -> None:
    """Put the library into a folder as an installer does: the old files go, new ones come."""
    new = folder.with_name(f"{folder.name}-{version}")
    source = Path(determined.__file__).parent
    shutil.copytree(source, new / "determined", ignore=shutil.ignore_patterns("__pycache__"))
    (new / "determined" / "_version.py").write_text(f'__version__ = "{version}"\n')
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}-old"))
        shutil.rmtree(folder.with_name(f"{folder.name}-old"))
    new.rename(folder)
