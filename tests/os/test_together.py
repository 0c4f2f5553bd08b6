"""Processes that need each other end together."""

from __future__ import annotations

import subprocess
import sys

from determined._os.together import wait_together


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
