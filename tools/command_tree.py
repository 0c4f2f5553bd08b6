"""The real commands of `det`, one by one."""

from __future__ import annotations

from collections.abc import Iterator

import click

from determined.cli._commands.absent import Absent
from determined.cli._commands.group import Group
from determined.cli._commands.nouns import det

Words = tuple[str, ...]


def commands(group: Group = det, before: Words = ()) -> Iterator[tuple[Words, click.Command]]:
    """All commands with the words that call them, those that only say why they are not here too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, Group):
            yield from commands(command, (*before, name))
        else:
            yield (*before, name), command


def find(words: Words) -> click.Command:
    """The command that words call, also by short names."""
    command: click.Command = det
    for word in words:
        assert isinstance(command, Group), words
        found = command.get_command(click.Context(command), word)
        assert found is not None, words
        command = found
    return command


ALL = dict(commands())
WORKING = [words for words, command in ALL.items() if not isinstance(command, Absent)]
ABSENT = [words for words, command in ALL.items() if isinstance(command, Absent)]
