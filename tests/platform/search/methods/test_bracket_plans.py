"""How many brackets, rungs and trials a search has."""

from __future__ import annotations

from typing import Any

import pytest

from determined.platform.search.methods.bracket_plans import (
    concurrency,
    plan_brackets,
    rung_counts,
    trial_shares,
)
from determined.platform.search.methods.rung import rung_units
from determined.platform.search.settings import Settings


def test_rung_units() -> None:
    assert rung_units(3, 4, 16) == [1, 4, 16]
    assert rung_units(4, 2, 20) == [2, 5, 10, 20]
    assert rung_units(3, 3, 500) == [55, 166, 500]


def settings(**changes: Any) -> Settings:
    usual = {"name": "adaptive_asha", "metric": "loss", "time_metric": "batches"}
    return Settings.from_dict({**usual, **changes})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"max_trials": 20, "max_time": 80000, "max_concurrent_trials": 6},
            [([5000, 20000, 80000], 15, 3), ([20000, 80000], 5, 3)],
        ),
        (
            {"max_trials": 12, "max_time": 50, "max_concurrent_trials": 3},
            [([12, 50], 8, 2), ([50], 4, 1)],
        ),
        (
            {"max_trials": 500, "max_time": 937},
            [
                ([3, 14, 58, 234, 937], 354, 6),
                ([14, 58, 234, 937], 110, 5),
                ([58, 234, 937], 36, 5),
            ],
        ),
        (
            {"max_trials": 64, "max_time": 64},
            [([1, 4, 16, 64], 45, 6), ([4, 16, 64], 14, 5), ([16, 64], 5, 5)],
        ),
        (
            {"max_trials": 100, "max_time": 64, "mode": "conservative"},
            [([1, 4, 16, 64], 67, 4), ([4, 16, 64], 21, 4), ([16, 64], 8, 4), ([64], 4, 4)],
        ),
        (
            {"max_trials": 100, "max_time": 64, "mode": "aggressive"},
            [([1, 4, 16, 64], 100, 16)],
        ),
        (
            {
                "max_trials": 24,
                "max_time": 200,
                "divisor": 3,
                "mode": "conservative",
                "max_concurrent_trials": 7,
            },
            [([22, 66, 200], 14, 3), ([66, 200], 6, 2), ([200], 4, 2)],
        ),
    ],
)
def test_brackets_of_adaptive_asha(given: dict[str, Any], expected: list[Any]) -> None:
    found = [(s.units, s.max_trials, s.max_concurrent) for s in plan_brackets(settings(**given))]
    assert found == expected


def test_trial_shares() -> None:
    assert trial_shares(30, 4, [3, 2]) == [22, 8]
    assert trial_shares(40, 3, [4, 3, 2]) == [25, 10, 5]
    assert trial_shares(7, 2, [3, 2, 1]) == [3, 2, 2]


def test_brackets_never_get_more_trials_than_there_are() -> None:
    assert trial_shares(2, 4, [3, 2, 1]) == [1, 1, 0]
    assert trial_shares(4, 4, [3, 1, 1, 1, 1]) == [2, 1, 1, 0, 0]
    many = settings(max_trials=2, max_time=64, bracket_rungs=[1, 2, 3])
    assert [s.max_trials for s in plan_brackets(many)] == [1, 1]


def test_concurrency_of_brackets() -> None:
    assert concurrency(0, 4, [22, 8]) == [8, 8]
    assert concurrency(0, 4, [20, 2]) == [4, 4]
    assert concurrency(7, 4, [9, 9, 9]) == [3, 2, 2]
    assert concurrency(2, 4, [9, 9, 9]) == [1, 1, 1]


@pytest.mark.parametrize(
    ("max_time", "divisor", "rungs"), [(243, 3, 6), (1000, 10, 4), (125, 5, 4), (64, 4, 4)]
)
def test_exact_powers_lose_no_rung(max_time: int, divisor: int, rungs: int) -> None:
    given = settings(max_trials=10**6, max_time=max_time, divisor=divisor, max_rungs=9)
    assert rung_counts(given)[0] == rungs
