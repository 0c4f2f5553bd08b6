"""The log of a trial as one numbered whole: the lines of its runs, one run after the other.

Lines count from 1. A page is found by number through the index that the keeper writes, so it costs
the same anywhere in a log of any size. Filters look at the bytes of a log first, and stop after a
while: the answer then tells where to go on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from determined.platform.log_reader import LogLine, LogReader
from determined.platform.run_folder import RunFolder
from determined.store import Run

_BLOCK_LINES = 20_000
PATIENCE_SECONDS = 0.25


@dataclass(frozen=True)
class Wanted:
    """Which lines to show; what is not given does not matter."""

    search: re.Pattern[str] | None = None
    levels: frozenset[str] = frozenset()
    ranks: frozenset[int] = frozenset()
    since: float | None = None
    until: float | None = None

    @property
    def is_anything(self) -> bool:
        return self == Wanted()

    def admits(self, line: LogLine) -> bool:
        """Whether to show a line; one that tells no level counts as INFO."""
        if self.ranks and line.rank not in self.ranks:
            return False
        if self.levels and (line.level or "INFO") not in self.levels:
            return False
        if self.since is not None and (line.time or 0.0) < self.since:
            return False
        if self.until is not None and (line.time or 0.0) > self.until:
            return False
        return self.search is None or self.search.search(line.text) is not None


class Numbered(NamedTuple):
    """A line with its number in the trial's log."""

    number: int
    run_id: int
    line: LogLine


class Page(NamedTuple):
    """Some lines; `next` is where to go on, None at the end. All up to there was looked at."""

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


class TrialLog:
    """The lines of a trial's runs."""

    def __init__(self, runs: Sequence[Run], counts: Sequence[int]) -> None:
        self._parts: list[_Part] = []
        first = 1
        for run, count in zip(runs, counts, strict=True):
            self._parts.append(_Part(run.run_id, reader_of(run), first, count))
            first += count
        self.total = first - 1

    def lines(self, first: int, stop: int) -> Iterator[Numbered]:
        """The lines from `first` to `stop`, without `stop` itself."""
        for part in self._parts:
            low, high = max(first, part.first), min(stop, part.first + part.count)
            if low < high:
                for line in part.reader.lines(low - part.first, high - part.first):
                    yield Numbered(part.first + line.number, part.run_id, line)

    def forwards(self, first: int, limit: int, wanted: Wanted) -> Page:
        """The first lines that fit, from a number on."""
        first = max(1, first, self._first_since(wanted))
        if wanted.is_anything:
            found = list(self.lines(first, first + limit))
            after = found[-1].number + 1 if found else first
            more = after if after <= self.total else None
            return Page(found, self.total, more, max(first - 1, 0) or None)
        found, deadline, after = [], time.monotonic() + PATIENCE_SECONDS, first
        for numbered in self.lines(first, self.total + 1):
            after = numbered.number + 1
            if wanted.until is not None and (numbered.line.time or 0.0) > wanted.until:
                after = self.total + 1
                break
            if wanted.admits(numbered.line):
                found.append(numbered)
                if len(found) >= limit:
                    break
            if after % 1024 == 0 and time.monotonic() > deadline:
                break
        more = after if after <= self.total else None
        return Page(found, self.total, more, max(first - 1, 0) or None)

    def backwards(self, last: int, limit: int, wanted: Wanted) -> Page:
        """The last lines that fit, up to a number."""
        last = min(last, self.total)
        after = last + 1 if last < self.total else None
        if wanted.is_anything:
            first = max(1, last - limit + 1)
            return Page(list(self.lines(first, last + 1)), self.total, after, first - 1 or None)
        found: list[Numbered] = []
        deadline, stop, low = (
            time.monotonic() + PATIENCE_SECONDS,
            last + 1,
            self._first_since(wanted),
        )
        while stop > max(1, low) and len(found) < limit and time.monotonic() < deadline:
            first = max(1, low, stop - _BLOCK_LINES)
            block = [n for n in self.lines(first, stop) if wanted.admits(n.line)]
            found = block + found
            stop = first
        kept = found[-limit:] if limit else []
        first_looked = kept[0].number if len(found) > limit and kept else stop
        previous = first_looked - 1 if first_looked > max(1, low) else None
        return Page(kept, self.total, after, previous)

    def _first_since(self, wanted: Wanted) -> int:
        if wanted.since is None:
            return 1
        for part in self._parts:
            number = part.reader.first_at_or_after(wanted.since)
            if number < part.count:
                return part.first + number
        return self.total + 1


def reader_of(run: Run) -> LogReader:
    """The log of a run."""
    folder = RunFolder(run.folder)
    return LogReader(folder.log, folder.log_times)
