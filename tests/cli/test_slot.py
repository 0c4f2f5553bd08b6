"""`det slot`."""

from __future__ import annotations

import json

import pytest

from tests.cli.det import told_by
from tests.cli.scripts import ENDLESS
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_slots_tell_who_runs_and_who_waits_why(lab: Lab) -> None:
    lab.create(
        ENDLESS,
        searcher={"name": "grid", "metric": "loss"},
        hyperparameters={"lr": {"type": "categorical", "vals": [1, 2]}},
        resources={"max_slots": 1},
    )
    lab.until(lambda: len(lab.service.reader.unfinished_runs()) == 1)
    lab.create(ENDLESS)
    lab.until(lambda: len(lab.service.reader.unfinished_runs()) == 2)
    lab.create(ENDLESS, resources={"slots_per_trial": 2})
    told = json.loads(told_by("slot", "list", "--json"))
    (first,) = {run.trial_id for run in lab.runs(1)}
    assert sorted(slot["trial_id"] for slot in told["slots"]) == [first, 3]
    assert {item["trial_id"]: item["reason"] for item in told["waiting"]} == {
        3 - first: "its experiment uses 1 of max_slots 1",
        4: "needs 2 slots, none free",
    }
    assert "needs 2 slots, none free" in told_by("slot")
    for number in (1, 2, 3):
        lab.service.kill(number)
    for number in (1, 2, 3):
        lab.wait(number)
    assert "free" in told_by("slot", "list")
