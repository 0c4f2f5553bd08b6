"""Logs: of a trial by line number, of an experiment by time; diffs and downloads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypedDict

from starlette.responses import Response, StreamingResponse

from determined._os.regular_file import open_regular
from determined.dashboard.api.code import unified
from determined.dashboard.endpoints.endpoints import Parameter, Refusal, Routes
from determined.dashboard.endpoints.kinds import Choice, Flag, Integer, Many, Number, Text
from determined.dashboard.endpoints.parameters import ID
from determined.dashboard.logs import merge
from determined.dashboard.logs.grep import TooSlow
from determined.dashboard.logs.pages import Numbered, Page, TrialLog, Wanted, reader_of
from determined.dashboard.view import View
from determined.platform.queries.logs import LEVELS
from determined.platform.runs.folder import RunFolder
from determined.store import Run

routes = Routes("logs")

_MOST_COMPARED = 5000
_TRACEBACK = "Traceback (most recent call last)"
_PIECE = 1 << 18
LIMIT = Parameter(Integer(1, 5000), 500, about="The maximum number of lines.")
TAIL = Parameter(Flag(), False, about="1: count from the end.")
FILTERS = {
    "search": Parameter(Text(200), about="Text to search for, ignoring case."),
    "level": Parameter(Many(Choice(LEVELS), 6), [], about="Lines without a level count as INFO."),
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
    """A page of a log: `next` and `previous` are where to continue, null at the ends."""

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
    tail=TAIL,
    limit=LIMIT,
    regex=Parameter(Flag(), False, about="1: `search` is a regular expression."),
    **FILTERS,
)
def logs(
    view: View, id: int, from_line: int | None, tail: bool, limit: int, regex: bool, **filters: Any
) -> LogShape:
    """Lines of a trial's log, from a line number on or from the end."""
    view.trial(id)
    wanted = wanted_of(filters, regex)
    log = log_of(view, id)
    try:
        page = _page(log, from_line, tail, limit, wanted)
    except TooSlow:
        raise Refusal(422, "search: this expression takes too long; simplify it.") from None
    lines = [line_shape(id, numbered) for numbered in page.lines]
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


def wanted_of(filters: dict[str, Any], regex: bool = False) -> Wanted:
    """Build the filter from the parameters of a request."""
    search = filters["search"] or None
    if search and regex:
        try:
            re.compile(search)
        except (re.error, OverflowError, RecursionError) as error:
            raise Refusal(422, f"search: not a regular expression: {error}.") from None
    return Wanted(
        None if regex else search,
        search if regex else None,
        frozenset(filters["level"]),
        frozenset(filters["rank"]),
        filters["since"],
        filters["until"],
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


class MergedShape(TypedDict):
    """Lines of many trials by time; `line` counts within the run that `source` names."""

    lines: list[LineShape]
    next: str | None
    previous: str | None


@routes.get(
    "/experiments/{id}/logs",
    id=ID,
    after=Parameter(Text(80), about="`next` of another page; with `tail`, its `previous`."),
    tail=TAIL,
    limit=LIMIT,
    **FILTERS,
)
def merged(
    view: View, id: int, after: str | None, tail: bool, limit: int, **filters: Any
) -> MergedShape:
    """The logs of all trials of an experiment, merged by time."""
    view.experiment(id)
    wanted = wanted_of(filters)
    place = merge.Place.read(after) if after else None
    if after and place is None:
        raise Refusal(422, "after: expected `next` or `previous` of another page.")
    runs = view.reader.tables.run_spans(id)
    page = merge.backwards if tail else merge.forwards
    found, on = page(runs, place, limit, wanted)
    lines: list[LineShape] = [
        {
            "line": entry.line.number + 1,
            "time": entry.line.time,
            "level": entry.line.level,
            "rank": entry.line.rank,
            "source": f"trial {entry.place.trial_id} run {entry.place.run_id}",
            "text": entry.line.text,
            "trial_id": entry.place.trial_id,
        }
        for entry in found
    ]
    last = str(found[-1].place) if found else after
    return {
        "lines": lines,
        "next": last if tail else None if on is None else str(on),
        "previous": (None if on is None else str(on)) if tail else _first(found, after),
    }


def _first(found: list[merge.Entry], after: str | None) -> str | None:
    return str(found[0].place) if found else after


class LogDiffShape(TypedDict):
    """A unified diff of two logs; `note` says if only their beginnings were compared."""

    diff: str
    note: str


@routes.get(
    "/trials/{id}/logs/diff",
    id=ID,
    other=Parameter(ID, is_required=True),
    numbers=Parameter(
        Flag(), False, about="1: lines that differ only in numbers count as different."
    ),
)
def diff(view: View, id: int, other: int, numbers: bool) -> LogDiffShape:
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


@routes.get("/trials/{id}/logs/download", "text/plain", id=ID)
def download(view: View, id: int) -> Response:
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
