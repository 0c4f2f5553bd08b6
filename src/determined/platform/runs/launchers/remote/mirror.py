"""The files of a run: read in pieces on its node, put together at home.

Files that only grow are sent from where the copy ends, so a piece that arrives twice changes
nothing and none is missing. Small files that are replaced as a whole are sent when they change.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

TENSORBOARD = "tensorboard"
"""The folder of event files, within a run's folder on its node."""
_GROWING = ("log", "log.times", "keeper.err")
_REPLACED = ("keeper.json", "log.matches")
_JOURNAL = "journal-"
_MOST_BYTES = 8 << 20


class Piece(NamedTuple):
    """Bytes of a file that grows, from `offset` on."""

    name: str
    offset: int
    content: bytes


class News(NamedTuple):
    """What is new in a run's folder; `is_all` once nothing more can come."""

    pieces: tuple[Piece, ...]
    replaced: dict[str, bytes]
    is_all: bool = False


def known(folder: Path, journals: Path, tensorboard: Path | None) -> dict[str, int]:
    """What `apply` has stored so far: sizes, and checksums of files that are replaced."""
    found = {
        name: path.stat().st_size
        for name, path in [*_growing(folder, tensorboard), *_growing(journals, None)]
        if path.parent == folder or not _is_of_part(name)
    }
    for name in _REPLACED:
        if (folder / name).exists():
            found[name] = zlib.crc32((folder / name).read_bytes())
    return found


def read_news(folder: Path, have: Mapping[str, int], most_bytes: int = _MOST_BYTES) -> News:
    """Read what is missing in `have`, up to a limit. `is_all` if the limit was not reached."""
    pieces, left = [], most_bytes
    # Time stamps follow the lines of a log, and must not be ahead of them in the copy.
    for name, path in sorted(_growing(folder, folder / TENSORBOARD), key=lambda p: p[0] != "log"):
        offset = have.get(name, 0)
        if left and path.stat().st_size > offset:
            with path.open("rb") as file:
                file.seek(offset)
                content = file.read(left)
            left -= len(content)
            pieces.append(Piece(name, offset, content))
    replaced = {}
    for name in _REPLACED:
        if (folder / name).exists():
            content = (folder / name).read_bytes()
            if zlib.crc32(content) != have.get(name):
                replaced[name] = content
    return News(tuple(pieces), replaced, left > 0)


def apply(news: News, folder: Path, journals: Path, tensorboard: Path | None) -> None:
    """Add what has arrived to the files of `folder`; journals and event files go elsewhere.

    Must not run concurrently for the same run.
    """
    for piece in news.pieces:
        if piece.name.startswith(f"{TENSORBOARD}/"):
            if tensorboard is None:
                continue
            path = tensorboard / piece.name.partition("/")[2]
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            path = (journals if piece.name.startswith(_JOURNAL) else folder) / piece.name
        _append(path, piece)
    for name, content in news.replaced.items():
        draft = folder / f".{name}.draft"
        draft.write_bytes(content)
        draft.replace(folder / name)


def _is_of_part(name: str) -> bool:
    """Whether each part of a run has a file of this name."""
    return name in _GROWING


def _append(path: Path, piece: Piece) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        skipped = file.tell() - piece.offset  # already here
        if 0 <= skipped < len(piece.content):
            file.write(piece.content[skipped:])


def _growing(folder: Path, tensorboard: Path | None) -> Iterator[tuple[str, Path]]:
    if folder.is_dir():
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in _GROWING or entry.name.startswith(_JOURNAL):
                    yield entry.name, Path(entry.path)
    if tensorboard is not None and tensorboard.is_dir():
        for path in tensorboard.rglob("*"):
            if path.is_file():
                yield f"{TENSORBOARD}/{path.relative_to(tensorboard)}", path
