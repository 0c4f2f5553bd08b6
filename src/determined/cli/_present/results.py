"""The result of a command: a line for people or, with `--json`, data for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])
_KEY = "determined.wants_json"


def _note(context: click.Context, parameter: click.Parameter, as_json: bool) -> None:
    context.meta[_KEY] = as_json


def json_option(function: _Function) -> _Function:
    """Add `--json` to a command that reports through `report`."""
    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_note,
        help="Print the result as JSON.",
    )(function)


def wants_json() -> bool:
    """Whether the current command was asked for JSON."""
    return bool(click.get_current_context().meta.get(_KEY))


def report(line: str, **facts: Any) -> None:
    """Print what a command did: the line, or the facts as JSON."""
    if wants_json():
        from determined.cli._present.tables import show_json

        show_json(facts)
    else:
        click.echo(line)
