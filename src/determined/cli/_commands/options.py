"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Row = TypeVar("_Row")
_LARGEST_ID = 2**63 - 1


class _Number(click.IntRange):
    """An integer that the store can hold; help does not speak of that limit."""

    def _describe_range(self) -> str:
        return f"x>={self.min}"


ID = _Number(1, _LARGEST_ID)
COUNT = _Number(0, _LARGEST_ID)
POSITIVE = _Number(1, _LARGEST_ID)


class ExperimentId(_Number):
    """The id of an experiment, which shells complete: of one in these states, if any are given."""

    def __init__(self, *states: str) -> None:
        super().__init__(1, _LARGEST_ID)
        self._states = states

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The ids that begin with what was typed, newest first."""
        from determined.cli._commands.suggestions import experiments

        return experiments(incomplete, self._states)


class TrialId(_Number):
    """The id of a trial, which shells complete."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The ids that begin with what was typed, newest first."""
        from determined.cli._commands.suggestions import trials

        return trials(incomplete)


class Ids(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """Ids with commas between them: `3` or `3,4,8`."""

    name = "ids"

    def __init__(self, each: click.IntRange) -> None:
        self._each = each

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        """Read the ids; each counts once."""
        words = [word.strip() for word in str(value).split(",")]
        if not all(word.isascii() and word.isdigit() for word in words):
            self.fail(f"expected ids such as 3 or 3,4,8, got {value!r}.", param, ctx)
        ids = [int(word) for word in words if len(word) < 20]
        if len(ids) < len(words) or not all(0 < number <= _LARGEST_ID for number in ids):
            self.fail(f"ids start at 1, got {value!r}.", param, ctx)
        return list(dict.fromkeys(ids))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What may follow the last comma."""
        from click.shell_completion import CompletionItem

        before, comma, last = incomplete.rpartition(",")
        found = self._each.shell_complete(ctx, param, last)
        return [CompletionItem(f"{before}{comma}{i.value}", help=i.help) for i in found]


class Text(click.ParamType):  # type: ignore[type-arg]  # not generic in click 8.1
    """Text that can be stored: no bytes of another encoding."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The same text."""
        if any("\ud800" <= character <= "\udfff" for character in value):
            self.fail("expected text in UTF-8.", param, ctx)
        return str(value)


class CheckpointUuids(Text):
    """UUIDs of checkpoints with commas between them, which shells complete."""

    name = "uuids"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The checkpoints that have files, newest first."""
        from click.shell_completion import CompletionItem

        from determined.cli._commands.suggestions import checkpoints

        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{i.value}", help=i.help) for i in checkpoints(last)]


class Workspace(Text):
    """The name of a workspace, which shells complete."""

    name = "workspace"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin with what was typed."""
        from determined.cli._commands.suggestions import workspaces

        return workspaces(incomplete)


class ModelName(Text):
    """The name of a registered model, which shells complete."""

    name = "model"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin with what was typed."""
        from determined.cli._commands.suggestions import models

        return models(incomplete)


class Project(Text):
    """The name of a project in the workspace before it, which shells complete."""

    name = "project"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin with what was typed."""
        from determined.cli._commands.suggestions import projects

        return projects(incomplete, ctx.params.get("workspace") or "")


EXPERIMENT_ID = ExperimentId()
TRIAL_ID = TrialId(1, _LARGEST_ID)
EXPERIMENT_IDS = Ids(EXPERIMENT_ID)
TEXT = Text()
UUIDS = CheckpointUuids()


def uuid_list(text: str) -> list[str]:
    """Take UUIDs with commas between them apart; each counts once."""
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise click.UsageError(f"expected UUIDs with commas between them, got {text!r}.")
    return list(dict.fromkeys(words))


def timestamp(text: str) -> float:
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


def json_option(function: _Function) -> _Function:
    """Give a command `--json`; it gets the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def confirm(question: str, yes: bool) -> None:
    """Ask, unless `--yes` answers; anything but yes ends the command and changes nothing."""
    if not yes and not click.confirm(question):
        raise click.ClickException("nothing was changed")


def smaller_option(function: _Function) -> _Function:
    """Give a command `--smaller-is-better true|false`."""
    return click.option(
        "--smaller-is-better",
        type=bool,
        metavar="true|false",
        help="Whether smaller is better; default: from the experiment's configuration.",
    )(function)


def without_effect(
    reason: str, *names: str, is_flag: bool = False
) -> Callable[[_Function], _Function]:
    """Give a command options of the original that have no meaning here; the help says why."""

    def decorate(function: _Function) -> _Function:
        for name in reversed(names):
            option = click.option(
                *name.split("/"),
                is_flag=is_flag,
                multiple=not is_flag,
                expose_value=False,
                help=f"No effect: {reason}.",
            )
            function = option(function)
        return function

    return decorate


def order_options(
    columns: Sequence[str], default: str, descending: bool = True
) -> Callable[[_Function], _Function]:
    """Give a command `--sort-by` and `--order-by`."""

    def decorate(function: _Function) -> _Function:
        sort_by = click.option(
            "--sort-by",
            type=click.Choice(columns),
            default=default,
            show_default=True,
            help="Sort by this column.",
        )
        order_by = click.option(
            "--order-by",
            type=click.Choice(["asc", "desc"]),
            default="desc" if descending else "asc",
            show_default=True,
            help="Ascending or descending.",
        )
        return sort_by(order_by(function))

    return decorate


def paging_options(limit: int) -> Callable[[_Function], _Function]:
    """Give a command `--limit`, `--offset` and `--pages`; see `page_of`."""

    def decorate(function: _Function) -> _Function:
        options = (
            click.option(
                "--limit", type=COUNT, default=limit, show_default=True, help="Rows per page."
            ),
            click.option(
                "--offset", type=COUNT, default=0, show_default=True, help="Rows to skip."
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
