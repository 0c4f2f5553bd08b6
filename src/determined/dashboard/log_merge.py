"""The logs of many runs as one: by time, in pages that can be gone on with from either end.

A line's place is its time, trial, run and number, so the order is the same whoever asks, and a page
begins where another ended, whatever was written meanwhile.
"""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from determined.dashboard.log_pages import PATIENCE_SECONDS, TrialLog, Wanted, reader_of
from determined.platform.log_reader import LogLine
from determined.store import Run

_MARK = re.compile(r"(-?[0-9.]{1,30}(?:e[+-]?\d{1,3})?)_(\d{1,15})_(\d{1,9})_(\d{1,15})")

_SKEW_SECONDS = 60.0  # lines have the time of the machine they were written on


class Place(NamedTuple):
    """Where a line stands among all."""

    time: float
    trial_id: int
    run_id: int
    number: int

    def __str__(self) -> str:
        return "_".join((repr(self.time), *map(str, self[1:])))

    @classmethod
    def read(cls, text: str) -> Place | None:
        """The place that a text names, None if it names none."""
        match = _MARK.fullmatch(text)
        if match is None:
            return None
        try:
            return cls(float(match[1]), int(match[2]), int(match[3]), int(match[4]))
        except ValueError:
            return None


class Entry(NamedTuple):
    """A line, and where it stands."""

    place: Place
    line: LogLine


def forwards(
    runs: Sequence[Run], after: Place | None, limit: int, wanted: Wanted
) -> tuple[list[Entry], Place | None]:
    """The first lines behind a place, and the place to go on from; None at the end."""
    begin = max(wanted.since or 0.0, after.time if after else 0.0)
    waiting = sorted(_alive_after(runs, begin, wanted.until), key=lambda run: run.created)
    waiting.reverse()
    live: list[tuple[Entry, Iterator[Entry]]] = []
    found: list[Entry] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while waiting or live:
        while waiting and (
            not live or waiting[-1].created <= live[0][0].place.time + _SKEW_SECONDS
        ):
            _push(live, _entries(waiting.pop(), begin, after))
        if not live:
            continue
        entry, rest = heapq.heappop(live)
        if _fits(entry, wanted):
            found.append(entry)
        if len(found) >= limit or time.monotonic() > deadline:
            return found, entry.place
        _push(live, rest)
    return found, None


def backwards(
    runs: Sequence[Run], before: Place | None, limit: int, wanted: Wanted
) -> tuple[list[Entry], Place | None]:
    """The last lines before a place, and the place to go on from; None at the beginning."""
    order = sorted(runs, key=lambda run: run.ended or float("inf"), reverse=True)
    found: list[Entry] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    for run in order:
        is_full = len(found) >= limit
        if is_full and run.ended is not None and run.ended < found[0].place.time - _SKEW_SECONDS:
            break
        if before is not None and run.created > before.time + _SKEW_SECONDS:
            continue
        found = heapq.nlargest(limit, [*found, *_last(run, before, limit, wanted)])[::-1]
        if time.monotonic() > deadline:
            break
    return found, found[0].place if len(found) >= limit else None


def _last(run: Run, before: Place | None, limit: int, wanted: Wanted) -> list[Entry]:
    reader = reader_of(run)
    log = TrialLog([run], [reader.count()])
    last = log.total
    if before is not None:
        last = min(last, reader.first_at_or_after(before.time))
        # Lines of the same moment as the place may stand before it.
        while last < log.total and all(
            _place(run, n.line) < before for n in log.lines(last + 1, last + 2)
        ):
            last += 1
    page = log.backwards(last, limit, wanted)
    entries = [Entry(_place(run, numbered.line), numbered.line) for numbered in page.lines]
    return [entry for entry in entries if before is None or entry.place < before]


def _alive_after(runs: Sequence[Run], begin: float, until: float | None) -> list[Run]:
    return [
        run
        for run in runs
        if (run.ended is None or run.ended >= begin - _SKEW_SECONDS)
        and (until is None or run.created <= until + _SKEW_SECONDS)
    ]


def _entries(run: Run, begin: float, after: Place | None) -> Iterator[Entry]:
    reader = reader_of(run)
    for line in reader.lines(reader.first_at_or_after(begin)):
        entry = Entry(_place(run, line), line)
        if after is None or entry.place > after:
            yield entry


def _place(run: Run, line: LogLine) -> Place:
    return Place(line.time or 0.0, run.trial_id, run.run_id, line.number)


def _push(live: list[tuple[Entry, Iterator[Entry]]], entries: Iterator[Entry]) -> None:
    entry = next(entries, None)
    if entry is not None:
        heapq.heappush(live, (entry, entries))


def _fits(entry: Entry, wanted: Wanted) -> bool:
    if wanted.text is not None and wanted.text.lower() not in entry.line.text.lower():
        return False
    return wanted.admits(entry.line)
