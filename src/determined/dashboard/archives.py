"""Stream folders as tar archives: nothing is held in memory, no link is followed."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

_PIECE = 1 << 18
_BLOCK = tarfile.BLOCKSIZE


def tar_of(folder: Path, name: str) -> Iterator[bytes]:
    """The files below a folder as an archive with a single top-level folder of this name."""
    for path in sorted(folder.rglob("*"), key=os.fsencode):
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            continue
        entry = tarfile.TarInfo(f"{name}/{path.relative_to(folder)}")
        entry.size, entry.mtime, entry.mode = status.st_size, int(status.st_mtime), 0o644
        yield entry.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
        yield from _content(path, status.st_size)
        yield bytes(-status.st_size % _BLOCK)
    yield bytes(2 * _BLOCK)


def _content(path: Path, size: int) -> Iterator[bytes]:
    """Exactly this many bytes: a file that grew is cut, one that shrank is padded with zeros."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        while size > 0 and (piece := file.read(min(_PIECE, size))):
            size -= len(piece)
            yield piece
    while size > 0:
        piece = bytes(min(_PIECE, size))
        size -= len(piece)
        yield piece
