"""The log of a trial with continuous line numbers: the lines of its runs, one run after the other.

Lines count from 1. A page is found by number through the index that the keeper writes, so it costs
the same anywhere in a log of any size. Filters scan the bytes of a log first, and stop after a
while: the answer then says where to continue.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from determined.dashboard.logs.grep import Part as GrepPart
from determined.dashboard.logs.grep import grep
from determined.dashboard.logs.scan import Finder, level_finder, scan, text_finder
from determined.platform.queries.log_reader import LogLine, LogReader
from determined.platform.runs.folder import RunFolder
from determined.store import Run, RunSpan

_BLOCK_LINES = 20_000
SCAN_SECONDS = 0.08
_GREP_SECONDS = 0.25  # long enough to be worth starting a process


@dataclass(frozen=True)
class Wanted:
    """Which lines to show; criteria that are not set are ignored.

    `text` must occur, ignoring case; `pattern` is a regular expression that must match.
    """

    text: str | None = None
    pattern: str | None = None
    levels: frozenset[str] = frozenset()
    ranks: frozenset[int] = frozenset()
    since: float | None = None
    until: float | None = None

    @property
    def is_anything(self) -> bool:
        return self == Wanted()

    @property
    def expression(self) -> str | None:
        """The expression to search for in another process, because it may take forever."""
        if self.pattern is not None:
            return self.pattern
        return None if self.text is None or self.text.isascii() else re.escape(self.text)

    @property
    def finder(self) -> Finder | None:
        """A finder that works on bytes; None if every line must be read."""
        if self.text is not None and self.text.isascii():
            return text_finder(self.text)
        if self.levels and "INFO" not in self.levels:  # lines without a level count as INFO
            return level_finder(self.levels)
        return None

    def admits(self, line: LogLine) -> bool:
        """Whether to show a line in which the text or the pattern was found."""
        if self.ranks and line.rank not in self.ranks:
            return False
        if self.levels and (line.level or "INFO") not in self.levels:
            return False
        if self.since is not None and (line.time or 0.0) < self.since:
            return False
        return self.until is None or (line.time or 0.0) <= self.until


class Numbered(NamedTuple):
    """A line with its number in the trial's log."""

    number: int
    run_id: int
    line: LogLine


class Page(NamedTuple):
    """Some lines of a log, and where to continue in both directions; None at the ends."""

    lines: list[Numbered]
    total: int
    next: int | None
    previous: int | None


@dataclass(frozen=True)
class _Part:
    """The log of one run; `first` is the number of its first line."""

    run_id: int
    reader: LogReader
    first: int
    count: int

    @property
    def stop(self) -> int:
        return self.first + self.count

    def lines(self, low: int, high: int) -> Iterator[Numbered]:
        for line in self.reader.lines(low - self.first, high - self.first):
            yield Numbered(self.first + line.number, self.run_id, line)


class TrialLog:
    """The lines of a trial's runs."""

    def __init__(self, runs: Sequence[Run | RunSpan], counts: Sequence[int]) -> None:
        self._parts: list[_Part] = []
        first = 1
        for run, count in zip(runs, counts, strict=True):
            self._parts.append(_Part(run.run_id, reader_of(run), first, count))
            first += count
        self.total = first - 1

    def lines(self, first: int, stop: int) -> Iterator[Numbered]:
        """The lines from `first` up to but not including `stop`."""
        for part in self._parts:
            low, high = max(first, part.first), min(stop, part.stop)
            if low < high:
                yield from part.lines(low, high)

    def first_of(self, run_id: int) -> int:
        """The number of the first line of a run."""
        return next((part.first for part in self._parts if part.run_id == run_id), 1)

    def forwards(self, first: int, limit: int, wanted: Wanted) -> Page:
        """The first matching lines, from a number on."""
        first = max(1, first, self._first_since(wanted))
        previous = min(first, self.total + 1) - 1 or None
        if wanted.is_anything:
            found = list(self.lines(first, first + limit))
            after = first + len(found)
        else:
            found, after = self._look(first, self.total + 1, limit, wanted, _deadline())
        return Page(found, self.total, after if after <= self.total else None, previous)

    def backwards(self, last: int, limit: int, wanted: Wanted) -> Page:
        """The last matching lines, up to a number."""
        last = min(last, self.total)
        after = last + 1 if last < self.total else None
        if wanted.is_anything:
            first = max(1, last - limit + 1)
            return Page(list(self.lines(first, last + 1)), self.total, after, first - 1 or None)
        low, stop, size = self._first_since(wanted), last + 1, _BLOCK_LINES
        found: list[Numbered] = []
        deadline = _deadline()
        while stop > low and len(found) < limit:
            first = max(low, stop - size)
            block, _ = self._look(first, stop, size, wanted, float("inf"))
            found, stop, size = block + found, first, 4 * size
            if time.monotonic() > deadline:
                break
        kept = found[-limit:]
        first_looked = kept[0].number if len(found) > limit else stop
        return Page(kept, self.total, after, first_looked - 1 if first_looked > low else None)

    def _look(
        self, first: int, stop: int, limit: int, wanted: Wanted, deadline: float
    ) -> tuple[list[Numbered], int]:
        """Matching lines, and the line up to which the log was searched."""
        found: list[Numbered] = []
        for part in self._parts:
            low, high = max(first, part.first), min(stop, part.stop)
            if low >= high:
                continue
            for after, lines in _candidates(part, low, high, limit, wanted):
                for line in lines:
                    if wanted.until is not None and (line.line.time or 0.0) > wanted.until:
                        return found, stop
                    if wanted.admits(line.line):
                        found.append(line)
                        if len(found) >= limit:
                            return found, line.number + 1
                    if time.monotonic() > deadline:
                        return found, line.number + 1
                if time.monotonic() > deadline:
                    return found, after
        return found, stop

    def _first_since(self, wanted: Wanted) -> int:
        if wanted.since is None:
            return 1
        for part in self._parts:
            number = part.reader.first_at_or_after(wanted.since)
            if number < part.count:
                return part.first + number
        return self.total + 1


def _deadline() -> float:
    return time.monotonic() + SCAN_SECONDS


def _candidates(
    part: _Part, low: int, high: int, limit: int, wanted: Wanted
) -> Iterator[tuple[int, Iterator[Numbered]]]:
    """Lines that may match, block by block, each with the line after the block."""
    expression, finder = wanted.expression, wanted.finder
    if expression is None and finder is None:
        for begin in range(low, high, 1000):
            end = min(begin + 1000, high)
            yield end, part.lines(begin, end)
        return
    while low < high:
        offset, line = part.reader.place(low - part.first)
        if expression is not None:
            begin, end = low - part.first, high - part.first
            stretch = GrepPart(str(part.reader.path), offset, line, begin, end)
            numbers, after = grep(expression, [stretch], limit, _GREP_SECONDS)
            first, low = low, _behind(after + part.first, low, high)
            yield low, _at(part, numbers, first)
            continue
        assert finder is not None
        for after, numbers in scan(part.reader.path, offset, line, high - part.first, finder):
            if after + part.first > low:  # else the block ends before the first line
                yield after + part.first, _at(part, numbers, low)
        return


def _behind(after: int, low: int, high: int) -> int:
    return after if after > low else high  # the log was truncated meanwhile: there is no more


def _at(part: _Part, numbers: list[int], low: int) -> Iterator[Numbered]:
    for number in numbers:
        if number + part.first >= low:
            yield from part.lines(number + part.first, number + part.first + 1)


def reader_of(run: Run | RunSpan) -> LogReader:
    """The log of a run."""
    folder = RunFolder(run.folder)
    return LogReader(folder.log, folder.log_times)
