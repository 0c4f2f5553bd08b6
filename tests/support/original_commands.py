"""The page that tells, for every command of the original, what it does here.

The names are facts about the original (version 0.38); the rest comes from the real command tree.
`python -m tests.support.original_commands` writes the page; a test compares.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import click

from determined.cli._absent import Absent
from tests.support.command_tree import find

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "original_commands.md"
_HEAD = """# Commands of Determined

Every command of Determined's command line, and what it does here. Commands that manage a cluster
have no meaning on one machine: they print the sentence in this table and exit with 1. The
[reference](commands.md) has the commands that are new.

Differences: `delete` returns when the deletion is done; `logs` of an experiment shows all of its
trials; times are local unless you pass `--utc`; most commands on experiments take several ids,
`3,4,8`.
"""

# Words after the noun; `-` stands for the noun alone.
ORIGINAL = {
    "experiment": "create list describe config logs list-trials list-checkpoints "
    "download-model-def download pause activate cancel kill archive unarchive continue delete wait "
    "move delete-tb-files label.add label.remove set.description set.name set.max-slots "
    "set.priority set.weight set.gc-policy set.log-retention",
    "trial": "describe logs download kill support-bundle set.log-retention",
    "checkpoint": "describe download delete rm",
    "preview-search": "-",
    "tensorboard": "start list open kill logs config set",
    "model": "create list describe list-versions register-version move delete",
    "workspace": "list create describe delete archive unarchive",
    "project": "list create describe delete archive unarchive",
    "job": "list update update-batch",
    "slot": "list enable disable",
    "user": "login logout whoami list create activate deactivate change-password "
    "link-with-agent-user rename edit",
    "version": "-",
    "agent": "-",
    "auth": "-",
    "command": "-",
    "deploy": "-",
    "dev": "-",
    "master": "-",
    "notebook": "-",
    "oauth": "-",
    "rbac": "-",
    "resource-pool": "-",
    "resources": "-",
    "shell": "-",
    "task": "-",
    "template": "-",
    "token": "-",
    "user-group": "-",
}


def page() -> str:
    """Return the page; a command of the original that nobody answers to is an error."""
    rows = [f"| `det {words}` | {here} |" for words, here in _rows()]
    return "\n".join([_HEAD, "| original | here |", "|---|---|", *rows, ""])


def _rows() -> Iterator[tuple[str, str]]:
    """The commands, and what they do; those that give the same reason stand together."""
    for noun, verbs in ORIGINAL.items():
        found = [(_words(verb), find((noun, *_words(verb)))) for verb in verbs.split()]
        for what, alike in itertools.groupby(found, key=lambda pair: _what(pair[1])):
            words = [" ".join(rest) for rest, _ in alike]
            is_everything = what.startswith("*") and words == [""]
            yield f"{noun} {'...' if is_everything else ', '.join(words)}".rstrip(), what


def _words(verb: str) -> tuple[str, ...]:
    return () if verb == "-" else tuple(verb.split("."))


def _what(command: click.Command) -> str:
    text = " ".join((command.help or "").split("\n\n")[0].split()).replace("|", "\\|")
    assert text
    return f"*{text}*" if isinstance(command, Absent) else text


if __name__ == "__main__":
    PAGE.write_text(page())
