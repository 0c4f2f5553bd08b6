"""The frame of the command line: finding commands, help, exit codes, pipes, colours, imports."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from determined.cli._commands.errors import exit_code_of
from determined.cli._commands.group import Group, Lazy, with_whole_options
from determined.cli._commands.nouns import det
from determined.errors import CheckpointNotFound
from tests.cli.det import det_on_a_terminal, run_det

_ROOT = Path(__file__).parents[2]


def test_help_lists_nouns_with_their_abbreviations() -> None:
    answer = run_det("--help")
    assert answer.returncode == 0
    lines = [line.split(maxsplit=2) for line in answer.stdout.splitlines()]
    assert ["experiment,", "e", "Create, check and follow experiments."] in lines


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


@pytest.mark.parametrize("words", [["-m", "http://x"], ["--master=http://x", "-u", "me"]])
def test_a_master_is_noted_and_not_used(words: list[str]) -> None:
    answer = run_det(*words, "version")
    assert (answer.returncode, answer.stderr.count("\n")) == (0, 1)
    assert "--master http://x has no effect: there is no master" in answer.stderr
    given = run_det("version", environment={"DET_MASTER": "http://x"})
    assert given.stderr == answer.stderr


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


def test_version_is_told() -> None:
    assert run_det("--version").stdout.startswith("det ")
    found = json.loads(run_det("version", "--json").stdout)
    assert set(found) == {"det", "python", "torch", "pydantic"}
    assert f"det        {found['det']}" in run_det("version").stdout


def test_console_script_is_declared() -> None:
    declared = '[project.scripts]\ndet = "determined.cli:main"\n'
    assert declared in (_ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (CheckpointNotFound("no checkpoint x"), 1, "det: no checkpoint x"),
        (PermissionError(13, "Permission denied", "/x"), 1, "Permission denied"),
        (click.ClickException("plain"), 1, "det: plain"),
        (click.UsageError("wrong"), 2, "det: wrong"),
        (KeyboardInterrupt(), 3, "det: interrupted"),
        (click.Abort(), 3, "det: interrupted"),
        (click.exceptions.Exit(7), 7, ""),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_exceptions_become_exit_codes(
    raised: BaseException, code: int, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def command() -> None:
        raise raised

    keep = os.dup(1)
    try:
        assert exit_code_of(command, []) == code
    finally:
        os.dup2(keep, 1)
        os.close(keep)
    shown = capfd.readouterr().err
    assert told in shown
    assert "Traceback" not in shown


def test_fault_of_our_own_shows_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def command() -> None:
        raise ZeroDivisionError("ours")

    assert exit_code_of(command, []) == 1
    assert "ZeroDivisionError: ours" in capfd.readouterr().err


def test_debug_shows_tracebacks_of_expected_errors(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    def command() -> None:
        raise CheckpointNotFound("x")

    monkeypatch.setenv("DET_DEBUG", "true")
    assert exit_code_of(command, []) == 1
    assert "Traceback" in capfd.readouterr().err


def test_reader_that_leaves_early_is_no_error() -> None:
    script = f"{sys.executable} -m determined.cli e schema | head -n 1; echo ${{PIPESTATUS[0]}}"
    answer = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=100, check=True
    )
    assert answer.stdout.split() == ["{", "0"]
    assert answer.stderr == ""


def test_ctrl_c_ends_with_its_own_code() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "determined.cli", "e", "validate", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("name: x\n")
    process.stdin.flush()
    _wait_until_reading(process.pid)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "interrupted" in told
    assert "Traceback" not in told


def _wait_until_reading(pid: int) -> None:
    """Wait until the process sleeps in a read of its standard input."""
    import time

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        loaded = "determined" in Path(f"/proc/{pid}/cmdline").read_text()
        waits = Path(f"/proc/{pid}/wchan").read_text()
        if loaded and "pipe" in waits and "read" in waits:
            return
        time.sleep(0.05)


def _on_a_terminal(environment: dict[str, str]) -> bytes:
    """What `det nonsense` writes to stderr when that is a terminal."""
    controller, terminal = pty.openpty()
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    subprocess.run(
        [sys.executable, "-m", "determined.cli", "nonsense"],
        stderr=terminal,
        env={**clean, "TERM": "xterm", **environment},
        timeout=100,
        check=False,
    )
    os.close(terminal)
    written = os.read(controller, 10_000)
    os.close(controller)
    return written


def test_colours_are_for_terminals_that_want_them() -> None:
    assert b"\x1b[31mdet: No such command" in _on_a_terminal({})
    assert b"\x1b" not in _on_a_terminal({"NO_COLOR": "1"})
    assert b"\x1b" not in _on_a_terminal({"TERM": "dumb"})
    assert "\x1b" not in run_det("nonsense").stderr


_HEAVY = (
    "torch",
    "numpy",
    "pydantic",
    "yaml",
    "rich",
    "asyncio",
    "determined.core",
    "determined.config",
)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["e", "--help"],
        ["version"],
        ["help", "e"],
        ["e", "list"],
        ["c", "list"],
        ["job"],
    ],
)
def test_light_commands_load_nothing_heavy(words: list[str]) -> None:
    script = (
        "import sys\nfrom determined.cli import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n"
        f"    print([m for m in {_HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True
    )
    assert answer.stderr.strip() == "[]"


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


def test_every_lazy_command_can_be_loaded_and_has_its_line_of_help() -> None:
    lazy: dict[str, Lazy] = det._lazy
    for command in lazy.values():
        loaded = command.load()
        assert loaded.name == command.name
        assert loaded.get_short_help_str(100) == command.help


def test_json_has_colours_only_where_they_are_wanted(tmp_path: Path) -> None:
    wanted = {"DET_CLI_COLORIZE": "1"}
    with det_on_a_terminal("version", "--json", environment=wanted) as terminal:
        assert terminal.end() == 0
        assert '\x1b[34m  "det"\x1b[0m: ' in terminal.output
    with det_on_a_terminal("version", "--json", environment=wanted | {"NO_COLOR": "1"}) as terminal:
        assert terminal.end() == 0
        assert "\x1b" not in terminal.output
    assert "\x1b" not in run_det("version", "--json", environment=wanted).stdout


@pytest.mark.parametrize(
    "words", [["e", "schema"], ["job", "list", "--csv"], ["completion", "zsh"]]
)
def test_a_reader_that_left_is_no_error(words: list[str]) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    answer = subprocess.run(
        [sys.executable, "-m", "determined.cli", *words],
        stdout=writes,
        stderr=subprocess.PIPE,
        timeout=100,
        check=False,
    )
    os.close(writes)
    assert (answer.returncode, answer.stderr) == (0, b"")
