"""The logs of trials: lines of all their runs by time, filtered, once or continuously.

`log_reader.py` reads the log of one run; here are the runs of a trial and the trials of a search.
"""

from __future__ import annotations

import heapq
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from determined._os.regular_file import open_regular
from determined.platform.queries.log_reader import LogLine, LogReader
from determined.platform.runs.folder import RunFolder
from determined.store import Reader, Run

LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_READ_BYTES = 1 << 18


class LogEntry(NamedTuple):
    """One line, and the trial and run it belongs to."""

    trial_id: int
    run_id: int
    line: LogLine


@dataclass(frozen=True)
class LogFilter:
    """Which lines to show; what is not given does not matter.

    Attributes:
        ranks: lines with a prefix of one of these ranks.
        level: lines of this level or above; lines without one count as INFO.
        after: seconds since 1970, the first moment that counts.
        before: the first moment that does not.
        search: a pattern that must occur in the line.
    """

    ranks: frozenset[int] = frozenset()
    level: str | None = None
    after: float | None = None
    before: float | None = None
    search: re.Pattern[str] | None = None

    def admits(self, line: LogLine) -> bool:
        """Whether to show a line."""
        if self.ranks and line.rank not in self.ranks:
            return False
        if self.level is not None and _rank(line.level or "INFO") < _rank(self.level):
            return False
        if self.search is not None and self.search.search(line.text) is None:
            return False
        time = line.time or 0.0
        return (self.after is None or time >= self.after) and (
            self.before is None or time < self.before
        )

    def overlaps(self, run: Run) -> bool:
        """Whether a run was alive in the period."""
        too_early = self.after is not None and run.ended is not None and run.ended < self.after - 1
        too_late = self.before is not None and run.created > self.before
        return not (too_early or too_late)


def read_logs(runs: Iterable[Run], wanted: LogFilter) -> Iterator[LogEntry]:
    """Yield the lines of runs, interleaved by time.

    A log is opened when the merge reaches the start of its run, so that only as many are open at
    once as runs were alive at once.
    """
    waiting = deque(sorted((r for r in runs if wanted.overlaps(r)), key=lambda r: r.created))
    live: list[tuple[float, int, LogEntry, Iterator[LogEntry]]] = []
    opened = 0
    while waiting or live:
        while waiting and (not live or waiting[0].created <= live[0][0]):
            opened += 1
            _push(live, opened, _entries(waiting.popleft(), wanted))
        if live:
            _, number, entry, entries = heapq.heappop(live)
            yield entry
            _push(live, number, entries)


def _push(
    live: list[tuple[float, int, LogEntry, Iterator[LogEntry]]],
    number: int,
    entries: Iterator[LogEntry],
) -> None:
    entry = next(entries, None)
    if entry is not None:
        heapq.heappush(live, (entry.line.time or 0.0, number, entry, entries))


def _entries(run: Run, wanted: LogFilter, first: int = 0) -> Iterator[LogEntry]:
    reader = _reader_of(run)
    if wanted.after is not None:
        first = max(first, reader.first_at_or_after(wanted.after))
    for line in reader.lines(first):
        if wanted.before is not None and (line.time or 0.0) >= wanted.before:
            return
        if wanted.admits(line):
            yield LogEntry(run.trial_id, run.run_id, line)


def tail_logs(runs: Sequence[Run], wanted: LogFilter, count: int) -> list[LogEntry]:
    """Return the last lines; those of one trial without filters are read from the end."""
    if count == 0:
        return []
    if wanted != LogFilter() or len({run.trial_id for run in runs}) > 1:
        return list(deque(read_logs(runs, wanted), maxlen=count))
    found: list[LogEntry] = []
    for run in sorted(runs, key=lambda run: run.run_id, reverse=True):
        lines = _reader_of(run).tail(count - len(found))
        found = [LogEntry(run.trial_id, run.run_id, line) for line in lines] + found
        if len(found) >= count:
            break
    return found


class LogFollower:
    """Reads what trials write, from the beginning, for as long as they run."""

    def __init__(self, reader: Reader, wanted: LogFilter) -> None:
        self._reader = reader
        self._wanted = wanted
        self._tails: dict[tuple[int, int], _Tail] = {}
        self._ended: set[tuple[int, int]] = set()

    def poll(self, trial_ids: Iterable[int]) -> list[LogEntry]:
        """Return the lines that are new since the last time, by time."""
        for trial_id in trial_ids:
            for run in self._reader.runs(trial_id):
                key = (run.trial_id, run.run_id)
                if key not in self._ended:
                    self._tails.setdefault(key, _Tail(run)).is_over = run.ended is not None
        new = []
        for key, tail in list(self._tails.items()):
            new += [LogEntry(*key, line) for line in tail.lines() if self._wanted.admits(line)]
            if tail.is_over:
                del self._tails[key]
                self._ended.add(key)
        return sorted(new, key=lambda entry: entry.line.time or 0.0)


class _Tail:
    """The end of one log; a line counts when it is complete, or when its run is over."""

    def __init__(self, run: Run) -> None:
        self.is_over = False
        self._folder = RunFolder(run.folder)
        self._reader = _reader_of(run)
        self._offset = 0
        self._whole = 0
        self._next = 0

    def lines(self) -> Iterator[LogLine]:
        self._count()
        stop = None if self.is_over else self._whole
        if stop is None or stop > self._next:
            for line in self._reader.lines(self._next, stop):
                self._next = line.number + 1
                yield line

    def _count(self) -> None:
        try:
            file = open_regular(self._folder.log)
        except FileNotFoundError:
            return
        with file:
            file.seek(self._offset)
            while chunk := file.read(_READ_BYTES):
                self._offset += len(chunk)
                self._whole += chunk.count(b"\n")


def _reader_of(run: Run) -> LogReader:
    folder = RunFolder(run.folder)
    return LogReader(folder.log, folder.log_times)


def _rank(level: str) -> int:
    return LEVELS.index(level) if level in LEVELS else -1
