"""The options that choose lines of logs."""

from __future__ import annotations

from typing import Any

import click

from determined.cli._options import COUNT, moment

_LEVELS = ("UNSPECIFIED", "TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def _refuse(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        raise click.BadParameter(
            "there are no containers and agents here, and a run writes one log: leave it out.",
            ctx,
            param,
        )


LOG_FLAGS = (
    click.option("-f", "--follow", is_flag=True, help="Show new lines as they come, to the end."),
    click.option("--head", type=COUNT, metavar="N", help="Only the first N lines."),
    click.option("--tail", type=COUNT, metavar="N", help="Only the last N lines."),
    click.option(
        "--rank-id", type=COUNT, multiple=True, metavar="N", help="Only lines of this rank."
    ),
    click.option(
        "--level",
        type=click.Choice(_LEVELS, case_sensitive=False),
        help="Only lines of this level or above; those that tell none count as INFO.",
    ),
    click.option(
        "--timestamp-after", type=moment, metavar="TIME", help="Only lines from this time on."
    ),
    click.option(
        "--timestamp-before", type=moment, metavar="TIME", help="Only lines before this time."
    ),
    click.option(
        "--search", metavar="PATTERN", help="Only lines in which a regular expression occurs."
    ),
    click.option("--utc", is_flag=True, help="Show times in UTC, not in local time."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line."),
    *(
        click.option(f"--{name}", multiple=True, hidden=True, expose_value=False, callback=_refuse)
        for name in ("container-id", "agent-id", "source", "stdtype")
    ),
)
