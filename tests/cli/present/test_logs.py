"""Logs on the command line: which lines, from whom, and following without holding on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import datetime, timezone
from typing import Any

import pytest

from tests.cli.det import det_on_a_terminal, run_det
from tests.cli.scripts import ENDLESS, STEPS
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_SEARCH: dict[str, Any] = {
    "searcher": {"name": "grid", "metric": "loss", "max_concurrent_trials": 2},
    "hyperparameters": {"lr": {"type": "categorical", "vals": [0.25, 0.5]}},
}


def _lines(*words: str) -> list[str]:
    answer = run_det(*words)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


def test_lines_of_all_trials_are_interleaved_and_can_be_chosen(lab: Lab) -> None:
    lab.wait(lab.create(STEPS, **_SEARCH))
    everything = _lines("e", "logs", "1")
    assert {line.split(" | ")[0].partition(" trial ")[2] for line in everything} == {"1", "2"}
    times = [line[:24] for line in everything]
    assert times == sorted(times)
    assert [line.split(" | ")[1] for line in _lines("e", "logs", "1", "--trial", "2")] == [
        line.split(" | ")[1] for line in _lines("t", "logs", "2")
    ]
    found = _lines("e", "logs", "1", "--search", "reached 1.")
    assert len(found) == 2
    assert all("reached 10" in line for line in found)
    assert len(_lines("t", "logs", "1", "--level", "warning")) == 2
    assert _lines("t", "logs", "1", "--head", "0") == []
    assert _lines("t", "logs", "1", "--tail", "0") == []
    log = _lines("t", "logs", "1")
    assert _lines("t", "logs", "1", "--head", "1") == log[:1]
    assert _lines("t", "logs", "1", "--tail", "2") == log[-2:]
    assert _lines("e", "logs", "1", "--tail", "3") == everything[-3:]
    assert _lines("t", "logs", "1", "--rank-id", "3") == []


def test_logs_tell_the_time_and_can_be_cut_by_it(lab: Lab) -> None:
    lab.wait(lab.create(STEPS))
    entries = [json.loads(line) for line in _lines("t", "logs", "1", "--json")]
    assert [entry["message"] for entry in entries][-1] == "ends at 20"
    last = entries[-1]["timestamp"]
    assert last.endswith("Z")
    assert abs(datetime.now(timezone.utc) - datetime.fromisoformat(last[:-1] + "+00:00")).days == 0
    environment = {"TZ": "Asia/Tokyo"}
    assert "+0900 | " in run_det("t", "logs", "1", environment=environment).stdout
    assert "+0000 | " in run_det("t", "logs", "1", "--utc", environment=environment).stdout
    assert _lines("t", "logs", "1", "--timestamp-before", "2001-01-01T00:00:00Z") == []
    assert _lines("t", "logs", "1", "--timestamp-after", "2999-01-01T00:00:00Z") == []
    after = _lines("t", "logs", "1", "--timestamp-after", "2001-01-01T00:00:00Z")
    assert len(after) == len(entries)


def test_escape_sequences_of_a_script_do_not_reach_the_terminal(lab: Lab) -> None:
    script = r"print('a \x1b]0;title\x07 b \x1b[31mred\x1b[0m \x1b[2J'); print('1%\r2%\r3%')"
    lab.wait(lab.create(script))
    with det_on_a_terminal("t", "logs", "1", environment={"NO_COLOR": "1"}) as terminal:
        assert terminal.end() == 0
    assert "\x1b" not in terminal.output
    assert "b red " in terminal.output
    assert re.search(r"\| 3%", terminal.output)
    assert "1%" not in terminal.output
    assert "\x1b[31mred" in run_det("t", "logs", "1").stdout  # a file gets what was written


def test_following_shows_lines_as_they_come_and_ends_with_the_experiment(lab: Lab) -> None:
    number = lab.create(ENDLESS)
    with det_on_a_terminal("e", "logs", "-f", "1") as terminal:
        terminal.until("is running")
        terminal.until("experiment 1 ACTIVE")
        lab.service.cancel(number)
        assert terminal.end() == 0
    assert "Experiment 1 is \x1b[35mCANCELED" in terminal.output


def test_ctrl_c_while_following_detaches_and_tells_how_to_come_back(lab: Lab) -> None:
    number = lab.create(ENDLESS)
    for words, again in (
        (["e", "logs", "-f", "1"], "det experiment logs -f 1"),
        (["t", "logs", "-f", "1"], "det trial logs -f 1"),
        (["e", "wait", "1"], "det experiment wait 1"),
    ):
        with det_on_a_terminal(*words) as terminal:
            terminal.until("experiment 1 ACTIVE")
            terminal.type("\x03")
            assert terminal.end() == 3
        told = terminal.output.replace("\r\n", "\n")
        assert f"Detached: experiment 1 keeps running. `{again}` follows it again" in told
        assert "Traceback" not in told
    before = lab.trials(number)[0].total_batches
    lab.until(lambda: lab.trials(number)[0].total_batches > before)
    lab.service.kill(number)
    lab.wait(number)


def test_following_survives_a_supervisor_that_dies(lab: Lab) -> None:
    number = lab.create(STEPS.replace("SECONDS = 0.0", "SECONDS = 0.2"))
    with det_on_a_terminal("e", "logs", "-f", str(number)) as terminal:
        terminal.until("starts")
        lab.kill_supervisor()
        assert terminal.end() == 0
    assert terminal.output.count("ends at 20") == 1
    assert "Experiment 1 is \x1b[32mCOMPLETED" in terminal.output


def test_a_closed_pipe_ends_it_quietly(lab: Lab) -> None:
    lab.wait(lab.create("for i in range(100_000): print(i)"))
    script = f"{sys.executable} -m determined.cli t logs 1 | head -n 2; echo ${{PIPESTATUS[0]}}"
    answer = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=100, check=True
    )
    assert answer.stdout.splitlines()[-1] == "0"
    assert answer.stderr == ""
