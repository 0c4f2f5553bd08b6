"""Groups of commands: help, shortened options, wrong words."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from determined.cli._commands.group import Group, with_whole_options
from determined.cli._commands.nouns import det
from tests.cli.det import run_det


@pytest.mark.parametrize(
    ("words", "shows"),
    [
        (["help"], "Usage: det [OPTIONS]"),
        (["-h"], "Usage: det [OPTIONS]"),
        (["help", "experiment"], "Usage: det experiment"),
        (["help", "e", "validate"], "Usage: det experiment validate"),
        (["experiment", "help"], "Usage: det experiment"),
        (["e", "help", "validate"], "Usage: det e validate"),
        (["e", "validate", "--help"], "Usage: det e validate"),
    ],
)
def test_help_is_a_word_at_each_level(words: list[str], shows: str) -> None:
    result = CliRunner().invoke(det, words, prog_name="det")
    assert result.exit_code == 0
    assert result.output.startswith(shows)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["exprement"], "No such command `exprement`. Did you mean `experiment`?"),
        (["e", "valdate", "x"], "No such command `valdate`. Did you mean `validate`?"),
        (["e", "shcema"], "Did you mean `schema`?"),
        (["qqqqqq"], "No such command `qqqqqq`.\n"),
        (["help", "exprement"], "Did you mean `experiment`?"),
        (["e", "validate"], "Missing argument 'CONFIG'."),
        (["e", "validate", "a", "b"], "unexpected extra argument"),
        (["e", "validate", "--nonsense"], "--nonsense"),
        (["-m", "http://x", "e", "kill", "1"], "--master http://x names another place"),
        (["-m", "http://x", "e", "set", "gc-policy", "1"], "Missing option"),
    ],
)
def test_wrong_usage_is_told_with_a_hint(words: list[str], hint: str) -> None:
    answer = run_det(*words)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert hint in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ("--follow", "--follow-first-trial"),
        ("--fol x --paus", "--follow-first-trial x --paused"),
        ("--config --paus", "--config --paus"),
        ("--te", "--te"),
        ("--test", "--test"),
        ("--templ=a=b --", "--template=a=b --"),
        ("-- --follow", "-- --follow"),
        ("--nonsense", "--nonsense"),
    ],
)
def test_long_options_may_be_shortened(words: str, whole: str) -> None:
    names = ("--follow-first-trial", "--paused", "--test", "--template", "--config")
    options = [
        click.Option([name], is_flag=name not in ("--config", "--template")) for name in names
    ]
    assert with_whole_options(words.split(), options) == whole.split()


def test_noun_alone_shows_its_verbs() -> None:
    answer = run_det("trial")
    assert answer.returncode == 2
    assert "describe" in answer.stderr


def test_group_runs_its_default_and_knows_aliases() -> None:
    @click.group(cls=Group, default="list")
    def noun() -> None:
        """A noun."""

    @noun.verb("list", aliases=["ls"])
    def listing() -> None:
        """List."""
        click.echo("listed")

    for words in ([], ["list"], ["ls"]):
        assert CliRunner().invoke(noun, words).output == "listed\n"
    assert "list, ls" in CliRunner().invoke(noun, ["--help"]).output
