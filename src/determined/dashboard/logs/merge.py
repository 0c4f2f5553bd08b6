"""The logs of many runs merged by time, in pages that can be continued in both directions.

A line's position is its time, trial, run and number, so the order is always the same, and a page
begins exactly where another ended, whatever was written in between.
"""

from __future__ import annotations

import heapq
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from determined.dashboard.logs.pages import SCAN_SECONDS, TrialLog, Wanted, reader_of
from determined.platform.queries.log_reader import LogLine
from determined.platform.runs.folder import LOG
from determined.store import RunSpan

_MARK = re.compile(r"(-?[0-9.]{1,30}(?:e[+-]?\d{1,3})?)_(\d{1,15})_(\d{1,9})_(\d{1,15})")

_SKEW_SECONDS = 60.0  # clocks of machines may differ by this much


class LogPosition(NamedTuple):
    """The position of a line among all lines."""

    time: float
    trial_id: int
    run_id: int
    number: int

    def __str__(self) -> str:
        return "_".join((repr(self.time), *map(str, self[1:])))

    @classmethod
    def read(cls, text: str) -> LogPosition | None:
        """Parse a position; None if the text is not valid."""
        match = _MARK.fullmatch(text)
        if match is None:
            return None
        try:
            return cls(float(match[1]), int(match[2]), int(match[3]), int(match[4]))
        except ValueError:
            return None


_BEGINNING, _END = (LogPosition(float(end), 0, 0, 0) for end in ("-inf", "inf"))


class Entry(NamedTuple):
    """A line and its position."""

    position: LogPosition
    line: LogLine


def forwards(
    runs: Sequence[RunSpan], after: LogPosition | None, limit: int, wanted: Wanted
) -> tuple[list[Entry], LogPosition | None]:
    """The first lines after a position, and the position to continue from; None at the end."""
    begin = max(wanted.since or 0.0, after.time if after else 0.0)
    waiting = sorted(_alive_after(runs, begin, wanted.until), key=lambda run: run.created)
    waiting.reverse()
    live: list[tuple[Entry, Iterator[Entry]]] = []
    found: list[Entry] = []
    deadline = time.monotonic() + SCAN_SECONDS
    while waiting or live:
        while waiting and (
            not live or waiting[-1].created <= live[0][0].position.time + _SKEW_SECONDS
        ):
            run = waiting.pop()
            if not _is_empty(run):
                _push(live, _entries(run, begin, after))
        if not live:
            continue
        entry, rest = heapq.heappop(live)
        if _fits(entry, wanted):
            found.append(entry)
        if len(found) >= limit or time.monotonic() > deadline:
            return found, entry.position
        _push(live, rest)
    return found, None


def backwards(
    runs: Sequence[RunSpan], before: LogPosition | None, limit: int, wanted: Wanted
) -> tuple[list[Entry], LogPosition | None]:
    """The last lines before a position, and the position to continue from; None at the beginning.

    If it takes long, it returns only lines after which none is missing, possibly none.
    """
    order = sorted(runs, key=lambda run: run.ended or float("inf"), reverse=True)
    found: list[Entry] = []
    unseen = _BEGINNING  # lines before it may be missing
    deadline = time.monotonic() + SCAN_SECONDS
    for run in order:
        newest = (float("inf") if run.ended is None else run.ended) + _SKEW_SECONDS
        if len(found) >= limit and newest < found[0].position.time:
            break
        rest = LogPosition(newest, 0, 0, 0)
        if time.monotonic() > deadline and rest < (before or _END):
            unseen = max(unseen, rest)
            break
        if before is not None and run.created > before.time + _SKEW_SECONDS:
            continue
        if _is_empty(run):
            continue
        lines, rest = _last(run, before, limit, wanted)
        unseen = max(unseen, rest)
        found = heapq.nlargest(limit, [*found, *lines])[::-1]
    found = [entry for entry in found if entry.position >= unseen]
    if len(found) >= limit:
        return found, found[0].position
    return found, unseen if unseen > _BEGINNING else None


def _last(
    run: RunSpan, before: LogPosition | None, limit: int, wanted: Wanted
) -> tuple[list[Entry], LogPosition]:
    """The last lines of a run, and the position before which it was not searched."""
    reader = reader_of(run)
    log = TrialLog([run], [reader.count()])
    last = log.total
    if before is not None:
        last = min(last, reader.first_at_or_after(before.time))
        # Lines with the same time as the position may come before it.
        while last < log.total and all(
            _position(run, n.line) < before for n in log.lines(last + 1, last + 2)
        ):
            last += 1
    page = log.backwards(last, limit, wanted)
    entries = [Entry(_position(run, numbered.line), numbered.line) for numbered in page.lines]
    unseen = _BEGINNING
    if page.previous is not None and len(entries) < limit:
        unseen = next(
            _position(run, n.line) for n in log.lines(page.previous + 1, page.previous + 2)
        )
    return [entry for entry in entries if before is None or entry.position < before], unseen


def _is_empty(run: RunSpan) -> bool:
    try:
        # By name: there may be ten thousand runs, and a Path takes longer than the question.
        return os.stat(f"{run.folder}/{LOG}").st_size == 0  # noqa: PTH116
    except OSError:
        return True


def _alive_after(runs: Sequence[RunSpan], begin: float, until: float | None) -> list[RunSpan]:
    return [
        run
        for run in runs
        if (run.ended is None or run.ended >= begin - _SKEW_SECONDS)
        and (until is None or run.created <= until + _SKEW_SECONDS)
    ]


def _entries(run: RunSpan, begin: float, after: LogPosition | None) -> Iterator[Entry]:
    reader = reader_of(run)
    for line in reader.lines(reader.first_at_or_after(begin)):
        entry = Entry(_position(run, line), line)
        if after is None or entry.position > after:
            yield entry


def _position(run: RunSpan, line: LogLine) -> LogPosition:
    return LogPosition(line.time or 0.0, run.trial_id, run.run_id, line.number)


def _push(live: list[tuple[Entry, Iterator[Entry]]], entries: Iterator[Entry]) -> None:
    entry = next(entries, None)
    if entry is not None:
        heapq.heappush(live, (entry, entries))


def _fits(entry: Entry, wanted: Wanted) -> bool:
    if wanted.text is not None and wanted.text.lower() not in entry.line.text.lower():
        return False
    return wanted.admits(entry.line)
