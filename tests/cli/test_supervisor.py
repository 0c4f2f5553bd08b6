"""`det supervisor`."""

from __future__ import annotations

import json
import os

import pytest

from determined._version import __version__
from determined.platform.supervisor import presence
from tests.cli.det import run_det, told_by
from tests.cli.scripts import ENDLESS
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_a_supervisor_is_started_seen_and_stopped(lab: Lab) -> None:
    answer = run_det("supervisor", "status", "--json")
    assert (answer.returncode, answer.stdout) == (1, "null\n")
    assert "No supervisor is running" in run_det("supervisor", "status").stdout
    assert "Started the supervisor" in told_by("supervisor", "start")
    facts = json.loads(told_by("supervisor", "status", "--json"))
    assert facts["version"] == __version__
    assert facts["home"] == str(lab.home.path)
    assert facts["slots"] == 2
    os.kill(facts["pid"], 0)
    assert "already" in told_by("supervisor", "start")
    assert json.loads(told_by("supervisor", "start", "--json")) == facts
    assert json.loads(told_by("supervisor", "stop", "--json")) == {"stopped": facts["pid"]}
    assert presence.find(lab.home) is None
    assert told_by("supervisor", "stop") == "No supervisor is running.\n"
    told_by("supervisor", "logs", "--tail", "2")


def test_any_question_restarts_a_supervisor_that_died(lab: Lab) -> None:
    number = lab.create(ENDLESS)
    lab.until(lambda: lab.trials(number)[0].total_batches > 0)
    lab.kill_supervisor()
    told_by("e", "list")
    lab.until(lambda: presence.find(lab.home) is not None)
    lab.service.kill(number)
    lab.wait(number)
