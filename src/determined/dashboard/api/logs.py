"""Logs of trials."""

from __future__ import annotations

import re
from typing import TypedDict

from determined.dashboard.endpoints import Parameter, Refusal, Routes
from determined.dashboard.kinds import Choice, Flag, Integer, Many, Number, Text
from determined.dashboard.log_pages import Numbered, TrialLog, Wanted, reader_of
from determined.dashboard.parameters import ID
from determined.dashboard.view import View
from determined.platform.logs import LEVELS
from determined.platform.run_folder import RunFolder
from determined.store import Run

routes = Routes("logs")

FILTERS = {
    "limit": Parameter(Integer(1, 5000), 500, about="How many lines at most."),
    "search": Parameter(Text(200), about="Text that must occur, in upper or lower case."),
    "regex": Parameter(Flag(), False, about="1: `search` is a regular expression."),
    "level": Parameter(Many(Choice(LEVELS), 6), [], about="Lines that tell none count as INFO."),
    "rank": Parameter(Many(Integer(0, 100_000), 100), []),
    "since": Parameter(Number(), about="Seconds since 1970."),
    "until": Parameter(Number(), about="Seconds since 1970."),
}


class LineShape(TypedDict):
    """A line of a log; lines count from 1 over all runs of the trial."""

    line: int
    time: float | None
    level: str | None
    rank: int | None
    source: str
    text: str
    trial_id: int


class LogShape(TypedDict):
    """A page of a log: `next` and `previous` are where to go on, null at the ends."""

    lines: list[LineShape]
    first: int | None
    last: int | None
    total: int
    next: int | None
    previous: int | None


@routes.get(
    "/trials/{id}/logs",
    id=ID,
    from_line=Parameter(Integer(1), about="The first line; with `tail`, the last one."),
    tail=Parameter(Flag(), False, about="1: count from the end."),
    **FILTERS,
)
def logs(
    view: View,
    id: int,
    from_line: int | None,
    tail: bool,
    limit: int,
    search: str | None,
    regex: bool,
    level: list[str],
    rank: list[int],
    since: float | None,
    until: float | None,
) -> LogShape:
    """Lines of a trial's log, from a number on or from the end."""
    view.trial(id)
    wanted = wanted_of(search, regex, level, rank, since, until)
    log = log_of(view, id)
    if tail:
        page = log.backwards(log.total if from_line is None else from_line, limit, wanted)
    else:
        page = log.forwards(from_line or 1, limit, wanted)
    lines = [line_shape(id, numbered) for numbered in page.lines]
    return {
        "lines": lines,
        "first": lines[0]["line"] if lines else None,
        "last": lines[-1]["line"] if lines else None,
        "total": page.total,
        "next": page.next,
        "previous": page.previous,
    }


def wanted_of(
    search: str | None,
    regex: bool,
    level: list[str],
    rank: list[int],
    since: float | None,
    until: float | None,
) -> Wanted:
    """The filter that the parameters of a request ask for."""
    pattern = None
    if search:
        try:
            pattern = re.compile(search if regex else re.escape(search), re.IGNORECASE)
        except (re.error, OverflowError, RecursionError) as error:
            raise Refusal(422, f"search: no regular expression: {error}.") from None
    return Wanted(pattern, frozenset(level), frozenset(rank), since, until)


def log_of(view: View, trial_id: int) -> TrialLog:
    """The log of a trial."""
    runs = view.reader.runs(trial_id)
    return TrialLog(runs, [_count(view, run) for run in runs])


def _count(view: View, run: Run) -> int:
    try:
        size = RunFolder(run.folder).log.stat().st_size
    except OSError:
        return 0
    return view.remember(("lines", run.folder), size, reader_of(run).count)


def line_shape(trial_id: int, numbered: Numbered) -> LineShape:
    """A line."""
    line = numbered.line
    return {
        "line": numbered.number,
        "time": line.time,
        "level": line.level,
        "rank": line.rank,
        "source": f"run {numbered.run_id}",
        "text": line.text,
        "trial_id": trial_id,
    }
