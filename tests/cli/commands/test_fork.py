"""`det trial fork`, and the lineage that `describe` shows on both sides."""

from __future__ import annotations

import json

import pytest

from tests.cli.det import told_by
from tests.support.forked import create, finished
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_a_trial_is_forked_and_both_sides_know_it(lab: Lab) -> None:
    parent = create(lab)
    finished(lab, parent)
    told = told_by(
        "trial", "fork", "1", "--at", "12", "--set", "lr=0.02", "--name", "what if", "-f"
    )
    assert told.startswith("A fork of trial 1 at batch 12 starts from checkpoint ")
    assert " at batch 10: 2 batches are trained again.\nCreated experiment 2\n" in told
    assert "weights" in told
    assert lab.experiment(2).name == "what if"
    assert "fork of trial 1 (experiment 1) at batch 12: lr 0.01 -> 0.02" in told_by(
        "trial", "describe", "2"
    )
    assert "forked as trial 2 (experiment 2) at batch 12: lr 0.01 -> 0.02" in told_by(
        "trial", "describe", "1"
    )
    for number, words in ((1, "trial 1: forked as trial 2"), (2, "trial 2: fork of trial 1")):
        assert words in told_by("experiment", "describe", str(number))
    data = json.loads(told_by("trial", "describe", "2", "--json"))["lineage"]
    assert (data["parent"]["trial_id"], data["parent"]["at"]) == (1, 12)
    assert data["parent"]["changed"] == {"lr": [0.01, 0.02]}
    answer = json.loads(told_by("trial", "fork", "1", "--at", "10", "--json"))
    assert (answer["experiment_id"], answer["batches_trained_again"]) == (3, 0)
    assert "has trained 24 batches" in told_by("trial", "fork", "1", "--at", "99", code=1)
    assert "expected NAME=VALUE" in told_by("trial", "fork", "1", "--at", "9", "--set", "x", code=2)
    lab.wait(3)
