"""The options that choose lines of logs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from determined.cli._commands.options import COUNT, moment

if TYPE_CHECKING:
    from determined.platform.queries.logs import LogFilter

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LEVELS = ("UNSPECIFIED", "TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


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
        "--timestamp-after", type=moment, metavar="TIME", help="Only lines from this time on."
    ),
    click.option(
        "--timestamp-before", type=moment, metavar="TIME", help="Only lines before this time."
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
