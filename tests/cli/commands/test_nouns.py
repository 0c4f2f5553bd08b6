"""The nouns of `det`, loaded when they are called."""

from __future__ import annotations

from determined.cli._commands.group import Lazy
from determined.cli._commands.nouns import det
from tests.cli.det import run_det


def test_help_lists_nouns_with_their_abbreviations() -> None:
    answer = run_det("--help")
    assert answer.returncode == 0
    lines = [line.split(maxsplit=2) for line in answer.stdout.splitlines()]
    assert ["experiment,", "e", "Create, check and follow experiments."] in lines


def test_every_lazy_command_can_be_loaded_and_has_its_line_of_help() -> None:
    lazy: dict[str, Lazy] = det._lazy
    for command in lazy.values():
        loaded = command.load()
        assert loaded.name == command.name
        assert loaded.get_short_help_str(100) == command.help
