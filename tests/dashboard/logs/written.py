"""Logs as keepers write them."""

from __future__ import annotations

from pathlib import Path

from determined._contracts.log_index import Stamper, pack
from determined.platform.runs.folder import RunFolder


def write_log(folder: Path, lines: list[str], per_piece: int = 3, begin: float = 100.0) -> None:
    """Write a log as a keeper sees it: in pieces, each with its time."""
    folder.mkdir(parents=True, exist_ok=True)
    stamper, files = Stamper(), RunFolder(folder)
    with files.log.open("wb") as log, files.log_times.open("wb") as times:
        for number, first in enumerate(range(0, len(lines), per_piece)):
            text = "".join(f"{line}\n" for line in lines[first : first + per_piece])
            log.write(text.encode())
            stamp = stamper.stamp(text.encode(), int((begin + number) * 1e6))
            if stamp is not None:
                times.write(pack(stamp))
