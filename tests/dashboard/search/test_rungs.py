"""Rungs of a search, the trials that came to them, and its decisions in sentences."""

from __future__ import annotations

import pytest

from determined.dashboard.search.rungs import amount, ordinal, sentence_of, step_sentence
from tests.dashboard.served import Served


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (
            "stopped at 1 epochs: rank 2 of 5, the best 1 continues",
            "Trial 7 was stopped at 1 epoch: it was 2nd of the 5 results there, "
            "and only the best one goes on.",
        ),
        (
            "stopped at 300 batches: rank 13 of 21, the best 7 continue, and at most 9 can",
            "Trial 7 was stopped at 300 batches: it was 13th of the 21 results there, "
            "and only the best 7 go on.",
        ),
        (
            "continues at 3 epochs: rank 1 of 1, the best 1 continues",
            "Trial 7 went on at 3 epochs: it was 1st of the 1 result there, "
            "and the best one goes on.",
        ),
        (
            "promoted from 3 epochs: rank 2 of 6, the best 2 continue",
            "Trial 7 was promoted from 3 epochs: it was 2nd of the 6 results there, "
            "and the best 2 go on.",
        ),
        ("a method of my own says so", "Trial 7: a method of my own says so."),
    ],
)
def test_a_decision_says_who_and_why(reason: str, sentence: str) -> None:
    unit = "batches" if "batches" in reason else "epochs"
    assert sentence_of("Trial 7", reason, unit) == sentence
    action = {"kind": "stop", "request_id": "r", "reason": reason}
    assert step_sentence(action, {"r": 7}, unit) == sentence


def test_new_trials_and_the_end_of_a_search_are_told_too() -> None:
    create = {"kind": "create", "request_id": "r", "reason": "a random sample"}
    assert step_sentence(create, {"r": 3}, "epochs") == "Trial 3 was created: a random sample."
    over = {"kind": "shutdown", "reason": "all 16 trials ended"}
    assert step_sentence(over, {}, "epochs") == "All 16 trials ended."


def test_numbers_are_told_as_people_do() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th")
    ]
    assert [amount(n, "batches") for n in (1, 2000)] == ["1 batch", "2,000 batches"]


def test_rungs_keep_the_best_of_those_who_came(shown: Served) -> None:
    found = shown.json("/api/experiments/1/rungs")
    assert found["method"] == "adaptive_asha"
    assert found["unit"] == "batches"
    seen = 0
    for bracket in found["brackets"]:
        for lower, upper in zip(bracket["rungs"], bracket["rungs"][1:], strict=False):
            assert lower["units"] < upper["units"]
            assert lower["kept"] >= upper["seen"]
        for rung in bracket["rungs"]:
            values = [row["metric"] for row in rung["rows"] if row["metric"] is not None]
            assert values == sorted(values)
            assert [row["rank"] for row in rung["rows"]] == list(range(1, len(rung["rows"]) + 1))
            assert all(row["sentence"] for row in rung["rows"])
        seen += bracket["rungs"][0]["seen"]
    assert seen == 16
    assert found["steps"][0]["number"] > found["steps"][-1]["number"]
    assert shown.json("/api/experiments/2/rungs")["brackets"] == []
