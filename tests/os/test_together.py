"""Processes that need each other end together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from determined._os.together import Command, run_together, wait_together


def start(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code])


def test_all_that_end_well_are_waited_for() -> None:
    assert wait_together([start("pass"), start("pass")]) == [0, 0]


def test_when_one_fails_the_others_are_ended() -> None:
    codes = wait_together([start("import time; time.sleep(600)"), start("raise SystemExit(3)")])
    assert (codes[0] < 0, codes[1]) == (True, 3)


def test_nobody_waits_for_ever_for_one_that_has_ended() -> None:
    waiting = start("import time; time.sleep(600)")
    codes = wait_together([waiting, start("pass")], alone_seconds=0)
    assert (codes[0] < 0, codes[1]) == (True, 0)


def command(tmp_path: Path, code: str, name: str = "log") -> Command:
    return Command((sys.executable, "-c", code), {"WORD": "hello"}, tmp_path, tmp_path / name)


def test_output_goes_into_a_file_and_its_end_is_shown(tmp_path: Path) -> None:
    code = "import os; print(os.environ['WORD'], os.getcwd(), flush=True); exit('x' * 4000)"
    failing = command(tmp_path, code)
    assert failing.last_output() == ""
    assert run_together([failing]) == [1]
    assert failing.log.read_text().startswith(f"hello {tmp_path}\n")
    assert failing.last_output() == "x" * 2999 + "\n"


def test_if_one_cannot_start_none_is_left(tmp_path: Path) -> None:
    read, write = os.pipe()
    waits = Command(("sleep", "600"), dict(os.environ), tmp_path, Path(f"/dev/fd/{write}"))
    missing = Command((str(tmp_path / "none"),), {}, tmp_path, tmp_path / "other")
    with pytest.raises(FileNotFoundError):
        run_together([waits, missing])
    os.close(write)
    assert os.read(read, 1) == b""  # nobody holds the other end any more
    os.close(read)
