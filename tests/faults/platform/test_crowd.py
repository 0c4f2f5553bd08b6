"""Many clients, many runs and many readers at once, and a supervisor that is killed meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.platform.crowd import REPORTS
from tests.faults.platform.steady import check_only_the_supervisor_lives
from tests.support import faults
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(3600)]

IS_SHORT = faults.factor() == 1
CREATORS, EACH, READERS, SLOTS = (2, 2, 1, 4) if IS_SHORT else (20, 10, 10, 64)
DEADLINE_SECONDS = 100.0 if IS_SHORT else 3000.0


def _start(lab: Lab, name: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.platform.crowd", str(lab.folder / name)]
    return subprocess.Popen(
        [*command, str(lab.home.path), *words],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _answer(process: subprocess.Popen[str]) -> object:
    said, errors = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, errors
    return json.loads(said)


def test_a_crowd_at_one_home_loses_no_command_and_keeps_the_order(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_SLOTS", str(SLOTS))
    lab.home.make()
    creators = [_start(lab, f"creator-{n}", "create", str(EACH)) for n in range(CREATORS)]
    lab.until(lambda: lab.service.has_store and lab.service.reader.experiments().rows)
    readers = [_start(lab, f"reader-{n}", "read") for n in range(READERS)]
    deadline, kills = time.monotonic() + DEADLINE_SECONDS, 0
    while any(creator.poll() is None for creator in creators):
        assert time.monotonic() < deadline, lab.account()
        time.sleep(1.0)
        lab.kill_supervisor()
        kills += 1
        lab.service.wake_if_needed()
    made = [_answer(creator) for creator in creators]
    assert all(ids == sorted(ids) for ids in made if isinstance(ids, list))
    everything = sorted(number for ids in made if isinstance(ids, list) for number in ids)
    assert everything == list(range(1, CREATORS * EACH + 1))
    while lab.service.reader.count_experiments(["ACTIVE", "STOPPING_COMPLETED"]):
        assert time.monotonic() < deadline, lab.account()
        lab.service.wake_if_needed()
        time.sleep(0.1)
    (lab.folder / "enough").touch()
    answers = [_answer(reader) for reader in readers]
    for number in everything:
        assert lab.experiment(number).state == "COMPLETED", lab.experiment(number).reason
        (trial,) = lab.trials(number)
        steps = [report.steps_completed for report in lab.service.reader.metrics.reports(trial.id)]
        assert steps == list(range(1, REPORTS + 1))
    assert not lab.service.reader.has_unanswered()
    check_only_the_supervisor_lives(lab)
    print(f"{len(everything)} experiments, {kills} kills, {answers} answers")  # noqa: T201
