"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Row = TypeVar("_Row")
_LARGEST_ID = 2**63 - 1
ID = click.IntRange(1, _LARGEST_ID)
COUNT = click.IntRange(0, _LARGEST_ID)


def id_list(text: str) -> list[int]:
    """Read ids with commas between them: `3` or `3,4,8`."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise click.BadParameter(f"expected ids such as 3 or 3,4,8, got {text!r}.")
    ids = [int(word) for word in words if len(word) < 20]
    if len(ids) < len(words) or not all(0 < number <= _LARGEST_ID for number in ids):
        raise click.BadParameter(f"ids start at 1, got {text!r}.")
    return ids


def moment(text: str) -> float:
    """Read a date and time as RFC 3339 writes them, local unless it says otherwise."""
    try:
        # Python 3.10 does not know the Z.
        return datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text.strip())).timestamp()
    except (ValueError, OverflowError, OSError):
        example = datetime(2026, 1, 31, 12, 0, tzinfo=timezone.utc).isoformat()
        raise click.BadParameter(f"expected a time such as {example}, got {text!r}.") from None


def utc_option(function: _Function) -> _Function:
    """Give a command `--utc`."""
    return click.option("--utc", is_flag=True, help="Show times in UTC, not in local time.")(
        function
    )


def yes_option(function: _Function) -> _Function:
    """Give a command `--yes`."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(function)


def paging_options(limit: int) -> Callable[[_Function], _Function]:
    """Give a command `--limit`, `--offset` and `--pages`; see `page_of`."""

    def decorate(function: _Function) -> _Function:
        options = (
            click.option(
                "--limit", type=COUNT, default=limit, show_default=True, help="Rows of a page."
            ),
            click.option(
                "--offset", type=COUNT, default=0, show_default=True, help="Rows to leave out."
            ),
            click.option(
                "--pages",
                type=click.Choice(["1", "all"]),
                default="all",
                show_default=True,
                help="One page, or all of them.",
            ),
        )
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def most_rows(limit: int, offset: int, pages: str) -> int | None:
    """How many rows to ask for, None for all."""
    return None if pages == "all" else min(limit + offset, _LARGEST_ID)


def page_of(rows: Sequence[_Row], limit: int, offset: int, pages: str) -> Sequence[_Row]:
    """The rows that paging options ask for."""
    return rows[offset:] if pages == "all" else rows[offset : offset + limit]
