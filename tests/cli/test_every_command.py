"""Every command of the tree: bad input never shows a traceback, and all of it is documented."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from determined.cli._group import Group
from determined.cli._nouns import det
from tests.cli.det import run_det
from tests.support.command_reference import reference

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


def _commands(group: Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, Group):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name)


_ALL = list(_commands(det))
# What changes or waits for nothing without arguments, so that it can be called with none.
_NEEDS_NOTHING = {
    ("dashboard",),
    ("experiment", "list"),
    ("experiment", "schema"),
    ("slot", "list"),
    ("store", "check"),
    ("store", "df"),
    ("store", "prune"),
    ("supervisor", "logs"),
    ("supervisor", "start"),
    ("supervisor", "status"),
    ("supervisor", "stop"),
    ("version",),
}


@pytest.mark.parametrize("words", _ALL, ids=" ".join)
def test_words_too_many_are_wrong_usage(words: tuple[str, ...]) -> None:
    answer = run_det(*words, "1", "2", "3", "4", "5")
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("words", sorted(set(_ALL) - _NEEDS_NOTHING), ids=" ".join)
@pytest.mark.parametrize("given", ["99", "-1", "x", "99999999999999999999999", "\x1b[31m", ""])
def test_unknown_things_are_told_in_one_line(words: tuple[str, ...], given: str) -> None:
    command = _find(words)
    count = sum(isinstance(p, click.Argument) and p.required for p in command.params)
    answer = run_det(*words, "--", *[given] * count)
    assert answer.returncode in (1, 2)
    assert "Traceback" not in answer.stderr
    assert "fault of `det`" not in answer.stderr
    if answer.returncode == 1 and words[-1] not in ("create", "validate", "preview-search"):
        assert answer.stderr.count("\n") == 1
    assert not Path(given or "no").exists()


@pytest.mark.parametrize("words", _ALL, ids=" ".join)
def test_help_of_every_command_explains_each_option(words: tuple[str, ...]) -> None:
    command = _find(words)
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{words}: {parameter.opts}"


def test_the_reference_shows_every_command() -> None:
    assert _PAGE.read_text() == reference(det), (
        "write it: python -m tests.support.command_reference"
    )


def _find(words: tuple[str, ...]) -> click.Command:
    command: click.Command = det
    for word in words:
        assert isinstance(command, Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command
