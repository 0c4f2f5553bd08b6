"""Processes that models and methods run in: started late, restarted, ended with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined.platform.search.methods.custom import CustomMethodError
from determined.platform.search.processes.custom_process import CustomProcess, LazyOracle
from tests.platform.search.climbing import METHOD, config
from tests.platform.search.scripted import SPACE


@pytest.fixture
def started(tmp_path: Path) -> list[CustomProcess]:
    (tmp_path / "my_search.py").write_text(METHOD)
    return []


def late(started: list[CustomProcess], folder: Path, name: str = "Climb") -> LazyOracle:
    def start() -> CustomProcess:
        started.append(CustomProcess(config(name), SPACE, 1, folder, log=folder / "log"))
        return started[-1]

    return LazyOracle(start)


START: dict[str, Any] = {"kind": "initial_trials"}
REPORT: dict[str, Any] = {
    "kind": "validation_completed",
    "trial": 0,
    "metrics": {"loss": 0.5},
    "steps": 1,
}
END: dict[str, Any] = {"kind": "trial_exited", "trial": 0}


def test_a_process_starts_with_the_first_question(
    started: list[CustomProcess], tmp_path: Path
) -> None:
    first = late(started, tmp_path)
    orders = [first.ask(message) for message in (START, REPORT, END)]
    again = late(started, tmp_path)
    again.repeat(START, orders[0])
    again.repeat(REPORT, orders[1])
    assert len(started) == 1
    assert again.ask(END) == orders[2]
    assert "nowhere near the protocol" in (tmp_path / "log").read_text()
    first.close()
    again.close()
    assert [psutil.pid_exists(process.pid) for process in started] == [False, False]


def test_a_process_that_was_killed_is_started_again(
    started: list[CustomProcess], tmp_path: Path
) -> None:
    oracle = late(started, tmp_path)
    unbroken = late(started, tmp_path)
    expected = [unbroken.ask(message) for message in (START, REPORT, END)]
    unbroken.close()
    found = [oracle.ask(START)]
    for message in (REPORT, END):
        os.kill(started[-1].pid, signal.SIGKILL)
        found.append(oracle.ask(message))
    oracle.close()
    assert found == expected
    assert len(started) == 4


def test_an_aborted_question_fails_for_good(started: list[CustomProcess], tmp_path: Path) -> None:
    oracle = late(started, tmp_path)
    oracle.ask(START)
    oracle.abort()
    with pytest.raises(CustomMethodError):
        oracle.ask(REPORT)
    oracle.close()
    assert len(started) == 1


def test_a_process_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    def start() -> CustomProcess:
        return CustomProcess(config(), SPACE, 1, tmp_path, python=str(tmp_path / "no-python"))

    with pytest.raises(CustomMethodError, match="no-python"):
        LazyOracle(start).ask(START)


def test_a_busy_process_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "my_search.py").write_text(METHOD)
    code = (
        "import sys, pathlib\n"
        "from determined.platform.search.processes.custom_process import CustomProcess\n"
        f"p = CustomProcess({config('Slow')!r}, {{}}, 1, pathlib.Path({str(tmp_path)!r}))\n"
        "print(p.pid, flush=True)\n"
        "p.ask({'kind': 'initial_trials'})\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    child.wait(60)
    assert not child.is_running()
