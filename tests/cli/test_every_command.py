"""Every command of the tree: bad input never shows a traceback, and all of it is documented."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import HealthCheck, example, given, settings

from determined.cli._commands.nouns import det
from determined.store import NewExperiment, NewTrial, Writer
from tests.cli.det import Answer, call_det, run_det
from tests.support.hostile_calls import HOSTILE, calls, words_of
from tools import original_commands
from tools.command_reference import PAGE, reference
from tools.command_tree import ABSENT, WORKING, Words, find

# What changes or waits for nothing without arguments, so that it can be called with none.
_NEEDS_NOTHING = {
    ("checkpoint", "gc"),
    ("checkpoint", "list"),
    ("dashboard",),
    ("experiment", "list"),
    ("experiment", "schema"),
    ("model", "list"),
    ("project", "list"),
    ("workspace", "list"),
    ("job", "list"),
    ("mcp",),
    ("slot", "list"),
    ("store", "backup"),  # any word is a file that it may write
    ("store", "check"),
    ("store", "df"),
    ("store", "prune"),
    ("store", "rebuild"),
    ("supervisor", "logs"),
    ("supervisor", "start"),
    ("supervisor", "status"),
    ("supervisor", "stop"),
    ("user", "list"),
    ("user", "login"),
    ("user", "logout"),
    ("user", "whoami"),
    ("version",),
}
_TAKES_ANY_NAME = {("model", "create"), ("workspace", "create")}
# What starts processes, or ends one, whatever it is called with.
_STARTS = {
    ("supervisor", "start"),
    ("supervisor", "stop"),
    ("supervisor", "install"),
    ("dashboard",),
    ("mcp",),
    *_TAKES_ANY_NAME,
}
_TELLS_MORE = ("create", "validate", "preview-search", "status")
_SHORT = {"a", "cmd", "d", "r", "rp", "tpl", "ug"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with records of an experiment that is over; no supervisor ever starts for it."""
    folder = tmp_path_factory.mktemp("records") / "home"
    writer = Writer(folder)
    with writer.transaction() as transaction:
        section: dict[str, object] = {"type": "shared_fs", "host_path": str(folder / "saved")}
        section |= {"save_experiment_best": 0, "save_trial_best": 1, "save_trial_latest": 1}
        config = {"checkpoint_storage": section, "resources": {"slots_per_trial": 1}}
        new = NewExperiment(config, "me", "records only", searcher_metric="loss")
        record = transaction.create_experiment(new)
        trial = transaction.create_trial(NewTrial(record.id, "request", 1, {"lr": 0.1}))
        transaction.update_trial(trial.id, state="COMPLETED")
        transaction.update_experiment(record.id, state="COMPLETED")
    writer.close()
    before = Path.cwd()
    (folder.parent / "work").mkdir()
    os.chdir(folder.parent / "work")
    yield folder
    os.chdir(before)
    assert not (folder / "supervisor.log").exists()


def _check(answer: Answer, words: Words) -> None:
    """Told in words, with an exit code that says so."""
    assert "Traceback" not in answer.errors, answer.errors
    assert "bug in `det`" not in answer.errors, answer.errors
    assert answer.code in (0, 1, 2, 3)
    if answer.code == 1 and words[-1] not in _TELLS_MORE:
        assert answer.errors.count("\n") == 1, answer.errors


@pytest.mark.parametrize("words", sorted(WORKING), ids=" ".join)
def test_words_too_many_are_wrong_usage(words: Words, home: Path) -> None:
    many = any(p.nargs == -1 for p in find(words).params)
    answer = call_det(
        *words, *("1", "2", "3", "4", "5"), *(["--no-such"] if many else []), home=home
    )
    assert answer.code == 2
    assert "Traceback" not in answer.errors


@pytest.mark.parametrize(
    "words",
    sorted(set(WORKING) - _NEEDS_NOTHING - _TAKES_ANY_NAME),
    ids=" ".join,
)
@pytest.mark.parametrize("given", HOSTILE)
def test_unknown_things_are_told_in_one_line(words: Words, given: str, home: Path) -> None:
    count = sum(isinstance(p, click.Argument) and p.required for p in find(words).params)
    answer = call_det(*words, "--", *[given] * count, home=home)
    assert answer.code in (1, 2)
    _check(answer, words)
    assert given == ".." or not Path(given or "no").exists()


@pytest.mark.parametrize("words", ABSENT, ids=" ".join)
def test_what_is_not_here_says_why_in_one_line(words: Words, home: Path) -> None:
    for more in ([], ["start", "--any", "thing"], ["--help"]):
        answer = call_det(*words, *more, home=home)
        assert answer.code == 1
        assert answer.output == ""
        assert answer.errors.startswith("det: ")
        assert answer.errors.count("\n") == 1


def test_a_few_real_processes_end_the_same_way(home: Path) -> None:
    for words, code in (
        (("experiment", "describe", "99"), 1),
        (("checkpoint", "rm", "x", "--glob", "../*"), 2),
        (("experiment", "delete", "1", "2", "3"), 2),
        (("experiment", "list", "--limit", "9" * 30), 2),
        (("notebook", "start"), 1),
        (("experiment", "list", "--offset", "9" * 18, "--pages", "1"), 0),
    ):
        answer = run_det(*words, environment={"DET_HOME": str(home)})
        assert answer.returncode == code, answer.stderr
        assert "Traceback" not in answer.stderr


_quiet = [words for words in WORKING if words not in _STARTS]
_ASKS = ("describe", "config", "list", "list-trials", "list-checkpoints", "compare", "logs")


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(calls(_quiet, _ASKS))
@example(("experiment", "describe", "1", "--metrics", "--csv", "--json"))
@example(("experiment", "list", "--limit", str(2**63 - 1), "--offset", str(2**63 - 1)))
@example(("trial", "logs", "1", "--search", "[", "--tail", "0"))
@example(("checkpoint", "rm", "99", "--glob", "", "--yes"))
@example(("experiment", "set", "weight", "99", "nan"))
@example(("experiment", "set", "max-slots", "99", "\u0663"))
@example(("experiment", "describe", "1", "--outdir", "tables"))
@example(("experiment", "compare", "1", "--metric", "\x01", "--json"))
@example(("tensorboard", "start", "1", "--port", "99999"))
def test_no_arguments_bring_about_a_traceback(home: Path, call: Words) -> None:
    _check(call_det(*call, home=home), words_of(call))


@pytest.mark.parametrize("words", WORKING, ids=" ".join)
def test_help_of_every_command_explains_each_option(words: Words) -> None:
    command = find(words)
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{words}: {parameter.opts}"


def test_the_reference_shows_every_command() -> None:
    assert PAGE.read_text() == reference(det), "write it: python -m tools.command_reference"


@pytest.mark.parametrize("words", original_commands.OPTIONS)
def test_every_option_of_the_original_is_accepted_and_in_the_help(words: str) -> None:
    assert original_commands.unanswered(words, original_commands.OPTIONS[words]) == []


def test_the_table_tells_what_became_of_each_command_of_the_original() -> None:
    expected = original_commands.page()
    write = "write it: python -m tools.original_commands"
    assert original_commands.PAGE.read_text() == expected, write
    for words in ABSENT:
        assert words[0] in original_commands.ORIGINAL or words[0] in _SHORT, words
