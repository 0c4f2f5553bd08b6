"""Read the log of a run: lines by number, from the end, or from a time on."""

from __future__ import annotations

import bisect
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from determined._contracts.log_index import LONGEST_LINE_BYTES, RECORD, Stamp
from determined._os.regular_file import open_regular

_READ_BYTES = 1 << 18
_LARGEST = 1 << 42  # of all files that any file system can hold
_LATEST = 253_402_300_799_000_000  # the end of the year 9999
_CUT = b"... (the rest of this line is left out)"
_RANK = re.compile(r"\[rank=(\d+)\] ")
_LEVEL = re.compile(r"(TRACE|DEBUG|INFO|WARNING|ERROR|CRITICAL): ")


class LogLine(NamedTuple):
    """One line as it is shown; `number` counts from 0, `time` is in seconds since 1970."""

    number: int
    time: float | None
    rank: int | None
    level: str | None
    text: str


class LogReader:
    """Reads the lines of a log, by number, from the end, or from a time on.

    Includes what was written so far, even an unfinished last line. Bytes that are not text are
    replaced, and lines are cut at `LONGEST_LINE_BYTES`, with a note.
    """

    def __init__(self, log: Path, times: Path) -> None:
        self._log = log
        self._times = times

    def lines(self, first: int = 0, stop: int | None = None) -> Iterator[LogLine]:
        """Yield lines `first` to `stop`, without `stop` itself."""
        stamps = _Stamps(self._times)
        position = max(bisect.bisect_right(stamps, first, key=lambda s: s.line) - 1, 0)
        start = stamps[position] if stamps else Stamp(0, 0, 0)
        for number, content in enumerate(self._from(start.offset), start.line):
            if stop is not None and number >= stop:
                return
            while position + 1 < len(stamps) and stamps[position + 1].line <= number:
                position += 1
            if number >= first:
                time = stamps[position].microseconds / 1e6 if stamps else None
                yield parse_line(number, time, content)

    def tail(self, count: int) -> Iterator[LogLine]:
        """Yield the last `count` lines."""
        yield from self.lines(max(0, self.count() - count))

    def count(self) -> int:
        """Return the number of lines so far."""
        stamps = _Stamps(self._times)
        last = stamps[len(stamps) - 1] if stamps else Stamp(0, 0, 0)
        return last.line + sum(1 for _ in self._from(last.offset))

    def first_at_or_after(self, time: float) -> int:
        """Return the number of the first line that came at this time or later."""
        stamps = _Stamps(self._times)
        wanted = int(time * 1e6)
        position = bisect.bisect_left(stamps, wanted, key=lambda s: s.microseconds)
        return stamps[position].line if position < len(stamps) else self.count()

    def place(self, number: int) -> tuple[int, int]:
        """A byte at which a line begins, and that line's number: the last known up to `number`."""
        stamps = _Stamps(self._times)
        if not stamps:
            return 0, 0
        position = max(bisect.bisect_right(stamps, number, key=lambda s: s.line) - 1, 0)
        return stamps[position].offset, stamps[position].line

    @property
    def path(self) -> Path:
        """The file itself."""
        return self._log

    def _from(self, offset: int) -> Iterator[bytes]:
        """Yield lines from a place where one begins; the memory needed is bounded."""
        try:
            file = open_regular(self._log)
        except FileNotFoundError:
            return
        with file:
            file.seek(offset)
            while line := file.readline(LONGEST_LINE_BYTES):
                rest, is_cut = line, False
                while rest and not rest.endswith(b"\n"):
                    rest = file.readline(_READ_BYTES)
                    is_cut = is_cut or bool(rest)
                yield line + _CUT if is_cut else line


class _Stamps:
    """The records of an index as a sequence, read where they are."""

    def __init__(self, path: Path) -> None:
        self._memory: mmap.mmap | None = None
        self._count = 0
        try:
            file = open_regular(path)
        except FileNotFoundError:
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            self._count = size // RECORD.size  # the last may be incomplete
            if self._count:
                self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, position: int) -> Stamp:
        if self._memory is None or not 0 <= position < self._count:
            raise IndexError(position)
        offset, line, microseconds = RECORD.unpack_from(self._memory, position * RECORD.size)
        # Invalid values, if a trial has written there, must not raise.
        return Stamp(min(offset, _LARGEST), line, max(0, min(microseconds, _LATEST)))


def parse_line(number: int, time: float | None, content: bytes) -> LogLine:
    """Return a line, without its end, with the rank and the level from its prefixes."""
    text = content.decode(errors="replace").rstrip("\r\n")
    rank = _RANK.match(text)
    level = _LEVEL.match(text, rank.end() if rank else 0)
    return LogLine(number, time, int(rank[1]) if rank else None, level and level[1], text)
