"""Find lines in the bytes of a log, a block at a time, skipping lines that cannot match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from determined._os.regular_file import open_regular

_BLOCK = 1 << 20

Finder = Callable[[bytes], Iterator[int]]
"""The offsets in a block at which a possible match begins, in order."""


def text_finder(text: str) -> Finder:
    """Finds an ASCII text, ignoring case."""
    needle = text.lower().encode("ascii")

    def find(block: bytes) -> Iterator[int]:
        lowered, place = block.lower(), -1
        while (place := lowered.find(needle, place + 1)) >= 0:
            yield place

    return find


def level_finder(levels: frozenset[str]) -> Finder:
    """Finds lines with one of these levels."""
    names = "|".join(sorted(levels))
    pattern = re.compile(rf"^(?:\[rank=\d+\] )?(?:{names}): ".encode(), re.MULTILINE)
    return lambda block: (match.start() for match in pattern.finditer(block))


def scan(
    path: Path, offset: int, first: int, stop: int, find: Finder
) -> Iterator[tuple[int, list[int]]]:
    """The numbers of matching lines, block by block, up to the line `stop`.

    Args:
        path: the log.
        offset: the byte at which the line `first` begins.
        first: its number.
        stop: the line to stop before.
        find: what to look for.

    Yields:
        The line after a block, and the lines found in it.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    with file:
        file.seek(offset)
        while first < stop and (block := _whole_lines(file)):
            found: list[int] = []
            line, counted = first, 0
            for place in find(block):
                line += block.count(b"\n", counted, place)
                counted = place
                if line >= stop:
                    break
                if not found or found[-1] != line:
                    found.append(line)
            first += block.count(b"\n") + (not block.endswith(b"\n"))
            yield min(first, stop), found


def _whole_lines(file: IO[bytes]) -> bytes:
    """The next block, up to the end of a line; the rest of a longer line is skipped."""
    block = file.read(_BLOCK)
    if not block or block.endswith(b"\n"):
        return block
    rest = file.readline(_BLOCK)
    block += rest
    while rest and not rest.endswith(b"\n"):
        rest = file.readline(_BLOCK)
        if rest.endswith(b"\n"):
            block += b"\n"
    return block
