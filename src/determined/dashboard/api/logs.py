"""Logs: of a trial by line number, of an experiment by time; diffs and downloads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from starlette.responses import Response, StreamingResponse
from typing_extensions import TypedDict

from determined._os.regular_file import open_regular
from determined.dashboard.api.code import unified
from determined.dashboard.endpoints.endpoints import ApiError, Routes
from determined.dashboard.endpoints.parameters import (
    NO_NULL,
    Flag,
    Id,
    Number,
    OneOf,
    Separated,
    ShortText,
)
from determined.dashboard.logs import merge
from determined.dashboard.logs.grep import SearchTimeoutError
from determined.dashboard.logs.pages import Numbered, Page, TrialLog, Wanted, reader_of
from determined.dashboard.view import View
from determined.platform.queries.logs import LEVELS
from determined.platform.runs.folder import RunFolder
from determined.store import Run

routes = Routes("logs")

_MOST_COMPARED = 5000
_TRACEBACK = "Traceback (most recent call last)"
_PIECE = 1 << 18
_Limit = Annotated[int, Field(ge=1, le=5000, description="The maximum number of lines.")]
_Tail = Annotated[Flag, Field(description="1: count from the end.")]
_Levels = Annotated[
    tuple[Annotated[str, OneOf(LEVELS)], ...],
    Field(max_length=6),
    Separated(about="Lines without a level count as INFO."),
]
_Ranks = Annotated[
    tuple[Annotated[int, Field(ge=0, le=100_000)], ...], Field(max_length=100), Separated()
]
_Time = Annotated[Number, Field(description="Seconds since 1970.")]


@dataclass(frozen=True)
class LogFilters:
    """Which lines to show."""

    search: Annotated[ShortText, Field(description="Text to search for, ignoring case.")] | None = (
        None
    )
    level: _Levels = ()
    rank: _Ranks = ()
    since: _Time | None = None
    until: _Time | None = None


class LineJson(TypedDict):
    """A line of a log; lines count from 1 over all runs of the trial."""

    line: int
    time: float | None
    level: str | None
    rank: int | None
    source: str
    text: str
    trial_id: int


class LogJson(TypedDict):
    """A page of a log: `next` and `previous` are where to continue, null at the ends."""

    lines: list[LineJson]
    first: int | None
    last: int | None
    total: int
    next: int | None
    previous: int | None


_FirstLine = Annotated[Id, Field(description="The first line; with `tail`, the last one.")]
_Regex = Annotated[Flag, Field(description="1: `search` is a regular expression.")]


@routes.get("/trials/{id}/logs")
def logs(
    view: View,
    id: Id,
    filters: LogFilters,
    from_line: _FirstLine | None = None,
    tail: _Tail = False,
    limit: _Limit = 500,
    regex: _Regex = False,
) -> LogJson:
    """Lines of a trial's log, from a line number on or from the end."""
    view.trial(id)
    wanted = wanted_of(filters, regex)
    log = log_of(view, id)
    try:
        page = _page(log, from_line, tail, limit, wanted)
    except SearchTimeoutError:
        raise ApiError(422, "search: this expression takes too long; simplify it.") from None
    lines = [line_json(id, numbered) for numbered in page.lines]
    return {
        "lines": lines,
        "first": lines[0]["line"] if lines else None,
        "last": lines[-1]["line"] if lines else None,
        "total": page.total,
        "next": page.next,
        "previous": page.previous,
    }


def _page(log: TrialLog, from_line: int | None, tail: bool, limit: int, wanted: Wanted) -> Page:
    if tail:
        return log.backwards(log.total if from_line is None else from_line, limit, wanted)
    return log.forwards(from_line or 1, limit, wanted)


def wanted_of(filters: LogFilters, regex: bool = False) -> Wanted:
    """Build the filter from the parameters of a request."""
    search = filters.search or None
    if search and regex:
        try:
            re.compile(search)
        except (re.error, OverflowError, RecursionError) as error:
            raise ApiError(422, f"search: not a regular expression: {error}.") from None
    return Wanted(
        None if regex else search,
        search if regex else None,
        frozenset(filters.level),
        frozenset(filters.rank),
        filters.since,
        filters.until,
    )


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


def traceback_line(view: View, trial_id: int, run_id: int) -> int | None:
    """The line at which the first traceback of a run begins; None if not found quickly."""
    log = log_of(view, trial_id)

    def find() -> int | None:
        page = log.forwards(log.first_of(run_id), 1, Wanted(text=_TRACEBACK))
        return page.lines[0].number if page.lines else None

    return view.remember(("traceback", trial_id, run_id), log.total, find)


def line_json(trial_id: int, numbered: Numbered) -> LineJson:
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


class MergedJson(TypedDict):
    """Lines of many trials by time; `line` counts within the run that `source` names."""

    lines: list[LineJson]
    next: str | None
    previous: str | None


_After = Annotated[
    str,
    Field(
        max_length=80,
        pattern=NO_NULL,
        description="`next` of another page; with `tail`, its `previous`.",
    ),
]


@routes.get("/experiments/{id}/logs")
def merged(
    view: View,
    id: Id,
    filters: LogFilters,
    after: _After | None = None,
    tail: _Tail = False,
    limit: _Limit = 500,
) -> MergedJson:
    """The logs of all trials of an experiment, merged by time."""
    view.experiment(id)
    wanted = wanted_of(filters)
    position = merge.LogPosition.read(after) if after else None
    if after and position is None:
        raise ApiError(422, "after: expected `next` or `previous` of another page.")
    runs = view.reader.tables.run_spans(id)
    page = merge.backwards if tail else merge.forwards
    found, on = page(runs, position, limit, wanted)
    lines: list[LineJson] = [
        {
            "line": entry.line.number + 1,
            "time": entry.line.time,
            "level": entry.line.level,
            "rank": entry.line.rank,
            "source": f"trial {entry.position.trial_id} run {entry.position.run_id}",
            "text": entry.line.text,
            "trial_id": entry.position.trial_id,
        }
        for entry in found
    ]
    last = str(found[-1].position) if found else after
    return {
        "lines": lines,
        "next": last if tail else None if on is None else str(on),
        "previous": (None if on is None else str(on)) if tail else _first(found, after),
    }


def _first(found: list[merge.Entry], after: str | None) -> str | None:
    return str(found[0].position) if found else after


class LogDiffJson(TypedDict):
    """A unified diff of two logs; `note` says if only their beginnings were compared."""

    diff: str
    note: str


_Numbers = Annotated[
    Flag, Field(description="1: lines that differ only in numbers count as different.")
]


@routes.get("/trials/{id}/logs/diff")
def diff(view: View, id: Id, other: Id, numbers: _Numbers = False) -> LogDiffJson:
    """How the log of another trial differs from this one's."""
    for trial_id in (id, other):
        view.trial(trial_id)
    found = [log_of(view, trial_id) for trial_id in (id, other)]
    texts = []
    for log in found:
        lines = (numbered.line.text for numbered in log.lines(1, _MOST_COMPARED + 1))
        texts.append("\n".join(lines if numbers else (re.sub(r"\d+", "#", t) for t in lines)))
    is_cut = any(log.total > _MOST_COMPARED for log in found)
    note = f"Only the first {_MOST_COMPARED:,} lines of each are compared." if is_cut else ""
    return {"diff": unified(texts[0], texts[1], f"trial {id}", f"trial {other}"), "note": note}


@routes.get("/trials/{id}/logs/download", "text/plain")
def download(view: View, id: Id) -> Response:
    """The unmodified log of a trial, one run after the other."""
    view.trial(id)
    headers = {"Content-Disposition": f'attachment; filename="trial-{id}.log"'}
    pieces = _pieces([run.folder for run in view.reader.runs(id)])
    return StreamingResponse(pieces, media_type="text/plain; charset=utf-8", headers=headers)


def _pieces(folders: list[str]) -> Iterator[bytes]:
    for folder in folders:
        try:
            file = open_regular(RunFolder(folder).log)
        except OSError:
            continue
        with file:
            while piece := file.read(_PIECE):
                yield piece
