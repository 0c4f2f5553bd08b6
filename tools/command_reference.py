"""The reference page of the command line, made from the commands themselves.

`python -m tools.command_reference` writes it; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from determined.cli._commands.group import Group
from determined.cli._commands.nouns import det

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
_HEAD = """# Commands

Every command of `det`, generated from its help. Short forms are listed after the names. Exit codes:
0 success, 1 error, 2 wrong usage, 3 interrupted. [Environment variables](environment.md) set where
things are stored and how they are shown.
"""


def reference(group: Group) -> str:
    """Return the page."""
    return _HEAD + "".join(_sections(group, "det"))


def _sections(group: Group, path: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden:  # what has no meaning here has a table of its own
            continue
        if isinstance(command, Group):
            if path == "det":
                yield f"\n## {path} {group._with_aliases(name)}\n\n{_text(command)}\n"
            yield from _sections(command, f"{path} {name}")
        else:
            level = "##" if path == "det" else "###"
            names = group._with_aliases(name)
            yield f"\n{level} {path} {names}\n\n{_usage(command, f'{path} {name}')}\n"
            yield f"\n{_text(command)}\n{_options(command)}"


def _usage(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path)
    words = [piece for p in command.get_params(context) for piece in p.get_usage_pieces(context)]
    has_options = any(isinstance(p, click.Option) and not p.hidden for p in command.params)
    return f"`{' '.join([path, *(['[OPTIONS]'] if has_options else []), *words])}`"


def _text(command: click.Command) -> str:
    paragraphs = (command.help or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _options(command: click.Command) -> str:
    context = click.Context(command)
    records = [
        record
        for p in command.params
        if isinstance(p, click.Option) and (record := p.get_help_record(context)) is not None
    ]
    if not records:
        return ""
    rows = [f"| `{names.replace('|', '¦')}` | {text} |" for names, text in records]
    return "\n".join(["", "| option | |", "|---|---|", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(reference(det))
