"""The frame of the command line: finding commands, help, exit codes, pipes, colours, imports."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.det import det_on_a_terminal, run_det

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("words", [["-m", "http://x"], ["--master=http://x", "-u", "me"]])
def test_a_master_is_noted_and_not_used(words: list[str]) -> None:
    answer = run_det(*words, "version")
    assert (answer.returncode, answer.stderr.count("\n")) == (0, 1)
    assert "--master http://x has no effect: there is no master" in answer.stderr
    given = run_det("version", environment={"DET_MASTER": "http://x"})
    assert given.stderr == answer.stderr


def test_version_is_told() -> None:
    assert run_det("--version").stdout.startswith("det ")
    found = json.loads(run_det("version", "--json").stdout)
    assert set(found) == {"det", "python", "torch", "pydantic"}
    assert f"det        {found['det']}" in run_det("version").stdout


def test_console_script_is_declared() -> None:
    declared = '[project.scripts]\ndet = "determined.cli:main"\n'
    assert declared in (_ROOT / "pyproject.toml").read_text()


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
