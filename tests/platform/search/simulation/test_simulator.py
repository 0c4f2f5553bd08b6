"""The simulator: budgets, slots and speed."""

from __future__ import annotations

from typing import Any

import pytest

from determined.platform.search.canonical_json import dump
from determined.platform.search.searcher import Searcher
from determined.platform.search.simulation.curves import RecordedCurves, SyntheticCurves
from determined.platform.search.simulation.simulator import simulate
from tests.platform.search.scripted import SPACE, halving


class Even:
    """Every trial is as good as its number of units, and takes a second for each."""

    def value(self, hparams: dict[str, Any], seed: int, units: int) -> float:
        return -float(units)

    def seconds(self, hparams: dict[str, Any], seed: int) -> float:
        return 1.0


def test_time_passes_as_slots_allow() -> None:
    search = {"name": "random", "metric": "loss", "max_trials": 6, "max_concurrent_trials": 0}
    for slots, seconds in ((1, 60), (2, 30), (4, 20), (6, 10), (9, 10)):
        outcome = simulate(Searcher(search, SPACE, 0), Even(), slots, [5, 10])
        assert outcome.seconds == seconds
        assert (outcome.units, outcome.num_full, outcome.is_over) == (60, 6, True)


def test_a_budget_of_units_ends_the_search_early() -> None:
    search = {"name": "random", "metric": "loss", "max_trials": 100}
    outcome = simulate(Searcher(search, SPACE, 0), Even(), 4, range(1, 11), max_units=55)
    assert outcome.units == 55
    assert not outcome.is_over


def test_the_best_result_is_followed() -> None:
    outcome = simulate(Searcher(halving(), SPACE, 0), Even(), 1, [1, 4, 16])
    assert outcome.best == [(1, -1.0), (4, -4.0), (16, -16.0)]
    assert sum(outcome.stopped_at.values()) == outcome.num_trials == 6


def test_recorded_curves_are_replayed() -> None:
    search = {"name": "grid", "metric": "acc", "smaller_is_better": False}
    space = {"a": {"type": "categorical", "vals": [1, 2]}}
    table = {RecordedCurves.key({"a": 1}): [0.1, 0.9], RecordedCurves.key({"a": 2}): [0.3, 0.4]}
    outcome = simulate(Searcher(search, space, 0), RecordedCurves(table), 1, [1, 2])
    assert [value for _, value in outcome.best] == [0.3, 0.4, 0.9]


def test_equal_seeds_give_equal_simulations() -> None:
    runs = [
        simulate(Searcher(halving(max_trials=40), SPACE, 3), SyntheticCurves(1), 4, [1, 4, 16])
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


@pytest.mark.slow
@pytest.mark.parametrize("stop_once", [True, False])
def test_ten_thousand_trials_on_a_thousand_slots(stop_once: bool) -> None:
    search = halving(max_trials=10_000, max_concurrent_trials=1000, stop_once=stop_once)
    searcher = Searcher(search, SPACE, 3)
    outcome = simulate(searcher, SyntheticCurves(1), 1000, [1, 4, 16])
    assert outcome.is_over
    assert outcome.num_trials == 10_000
    assert 300 <= outcome.num_full < 1500
    dump(searcher.snapshot())
