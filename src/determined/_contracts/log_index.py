"""When the lines of a log came: `log.times`, written by the keeper, read by `log_reader.py`.

The keeper reads a log in pieces. For each piece in which a line begins it writes one record: where
the first such line begins, its number, and the time. So the index stays small however much is
printed, a line is found by number or time with a binary search and a short read, and lines that
were not stamped (the keeper was killed) have the time of the last record. Standard library only.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

RECORD = struct.Struct("<QQq")  # offset, line number, microseconds since 1970
LONGEST_LINE_BYTES = 1 << 16


class Stamp(NamedTuple):
    """A line's place in the log, and when it came."""

    offset: int
    line: int
    microseconds: int


class Stamper:
    """Makes the records of a log that is read from its beginning to its end."""

    def __init__(self) -> None:
        self._offset = 0
        self._line = 0
        self._at_line_start = True
        self._latest = 0

    def stamp(self, piece: bytes, microseconds: int) -> Stamp | None:
        """Take the next piece; return its record, None when no line begins in it."""
        begin = 0 if self._at_line_start else piece.find(b"\n") + 1
        starts = piece.count(b"\n", 0, len(piece) - 1) + self._at_line_start if piece else 0
        # The clock may have been set back; the index must stay sorted.
        self._latest = max(self._latest, microseconds)
        record = Stamp(self._offset + begin, self._line, self._latest) if starts else None
        self._offset += len(piece)
        self._line += starts
        self._at_line_start = piece.endswith(b"\n") if piece else self._at_line_start
        return record


def pack(stamp: Stamp) -> bytes:
    return RECORD.pack(*stamp)
