"""Logs on the terminal: the options that choose lines, and how lines are printed."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from determined.cli._commands.errors import HELD, OK, use_colour
from determined.cli._commands.options import COUNT, timestamp
from determined.cli._present.layout import printable
from determined.cli._present.tables import iso_time, time_text

if TYPE_CHECKING:
    from determined.platform.queries.logs import LogEntry, LogFilter
    from determined.platform.service import Service

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LEVELS = ("UNSPECIFIED", "TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_TRIAL_COLOURS = ("cyan", "green", "yellow", "magenta", "blue")


def _refuse(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        raise click.BadParameter(
            "there are no containers and agents here, and a run writes one log: leave it out.",
            ctx,
            param,
        )


_FLAGS = (
    click.option("-f", "--follow", is_flag=True, help="Keep showing new lines until the end."),
    click.option("--head", type=COUNT, metavar="N", help="Only the first N lines."),
    click.option("--tail", type=COUNT, metavar="N", help="Only the last N lines."),
    click.option(
        "--rank-id", type=COUNT, multiple=True, metavar="N", help="Only lines of this rank."
    ),
    click.option(
        "--level",
        type=click.Choice(_LEVELS, case_sensitive=False),
        help="Only lines of this level or above; lines without a level count as INFO.",
    ),
    click.option(
        "--timestamp-after", type=timestamp, metavar="TIME", help="Only lines from this time on."
    ),
    click.option(
        "--timestamp-before", type=timestamp, metavar="TIME", help="Only lines before this time."
    ),
    click.option("--search", metavar="PATTERN", help="Only lines that match a regular expression."),
    click.option("--utc", is_flag=True, help="Show times in UTC, not in local time."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line."),
    *(
        click.option(f"--{name}", multiple=True, hidden=True, expose_value=False, callback=_refuse)
        for name in ("container-id", "agent-id", "source", "stdtype")
    ),
)


def log_options(function: _Function) -> _Function:
    """Give a command the options that choose lines of logs; see `log_filter`."""
    for option in reversed(_FLAGS):
        function = option(function)
    return function


def log_filter(
    rank_id: tuple[int, ...],
    level: str | None,
    timestamp_after: float | None,
    timestamp_before: float | None,
    search: str | None,
) -> LogFilter:
    """The lines that log options ask for."""
    from determined.platform.queries.logs import LogFilter

    try:
        pattern = None if search is None else re.compile(search)
    except re.error as error:
        raise click.UsageError(
            f"--search: {search!r} is not a regular expression: {error}."
        ) from None
    minimum = None if level in (None, "UNSPECIFIED") else level
    return LogFilter(frozenset(rank_id), minimum, timestamp_after, timestamp_before, pattern)


@dataclass(frozen=True)
class LogRequest:
    """The options of `log_options`, read."""

    wanted: LogFilter
    follow: bool
    head: int | None
    tail: int | None
    utc: bool
    as_json: bool

    @property
    def is_partial(self) -> bool:
        """Whether lines may have been left out."""
        from determined.platform.queries.logs import LogFilter

        return self.wanted != LogFilter()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> LogRequest:
        """Read the options; at most one of head, tail and follow."""
        follow, head, tail = options["follow"], options["head"], options["tail"]
        if sum([follow, head is not None, tail is not None]) > 1:
            raise click.UsageError("Use at most one of --head, --tail and --follow.")
        names = ("rank_id", "level", "timestamp_after", "timestamp_before", "search")
        wanted = log_filter(**{name: options[name] for name in names})
        return cls(wanted, follow, head, tail, options["utc"], options["as_json"])


class LogPrinter:
    """Prints lines; those of several trials with the trial they come from."""

    def __init__(self, *, names_trials: bool, utc: bool, as_json: bool) -> None:
        self._names_trials = names_trials
        self._utc = utc
        self._as_json = as_json
        self._is_terminal = sys.stdout.isatty()
        self._has_colour = use_colour(sys.stdout)

    def show(self, entry: LogEntry) -> None:
        """Print a line."""
        click.echo(self._json(entry) if self._as_json else self._text(entry), color=True)

    def _text(self, entry: LogEntry) -> str:
        line = entry.line
        text = _safe(line.text) if self._is_terminal else line.text
        time = time_text(line.time, utc=self._utc)
        whose = f" trial {entry.trial_id}" if self._names_trials else ""
        prefix = f"{time}{whose} | "
        if self._has_colour:
            colour = _TRIAL_COLOURS[entry.trial_id % len(_TRIAL_COLOURS)]
            prefix = click.style(prefix, fg=colour if self._names_trials else "bright_black")
            if line.level in ("ERROR", "CRITICAL"):
                text = click.style(text, fg="red")
            elif line.level == "WARNING":
                text = click.style(text, fg="yellow")
        return prefix + text

    def _json(self, entry: LogEntry) -> str:
        import json

        line = entry.line
        content = {
            "trial_id": entry.trial_id,
            "run_id": entry.run_id,
            "line": line.number,
            "timestamp": iso_time(line.time),
            "rank_id": line.rank,
            "level": line.level,
            "message": line.text,
        }
        return json.dumps(content, sort_keys=True)


def _safe(text: str) -> str:
    """What a terminal may be sent: no colours, of a line drawn over itself the last state."""
    text = _COLOURS.sub("", text).rstrip("\r").rpartition("\r")[2]
    return printable(text.replace("\t", "    "))


def show_logs(
    service: Service, experiment_id: int, trial_id: int | None, request: LogRequest
) -> int:
    """Show the log of one trial, or of all trials of an experiment."""
    from determined.platform.queries.logs import read_logs, tail_logs
    from determined.store import TrialFilter

    printer = LogPrinter(names_trials=trial_id is None, utc=request.utc, as_json=request.as_json)
    if request.follow:
        return _follow(service, experiment_id, trial_id, request, printer)
    only = TrialFilter(experiment_id=experiment_id)
    trials = [trial_id] if trial_id else [t.id for t in service.reader.trials(only).rows]
    runs = [run for number in trials for run in service.reader.runs(number)]
    if request.tail is not None:
        entries = iter(tail_logs(runs, request.wanted, request.tail))
    else:
        entries = itertools.islice(read_logs(runs, request.wanted), request.head)
    for entry in entries:
        printer.show(entry)
    return OK


def _follow(
    service: Service, experiment_id: int, trial_id: int | None, request: LogRequest, printer: Any
) -> int:
    from determined.cli._present.following import Follower, guarded, has_paused_itself, show_outcome

    follower = Follower(service, experiment_id)
    again = f"det experiment logs -f {experiment_id}"
    if trial_id is not None:
        again = f"det trial logs -f {trial_id}"

    def work() -> int:
        follower.logs(request.wanted, printer, trial_id)
        follower.close()
        if trial_id is None and not request.as_json:
            show_outcome(service, experiment_id, with_traceback=request.is_partial)
        if trial_id is None and has_paused_itself(service.experiment(experiment_id)):
            return HELD
        return OK

    return guarded(follower, again, work)
