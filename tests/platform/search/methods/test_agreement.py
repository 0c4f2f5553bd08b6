"""A rung that predicts the next one keeps its share; one that misleads lets more trials pass."""

from __future__ import annotations

import random
from typing import Any

import pytest

from determined.platform.search.methods.agreement import Agreement
from determined.platform.search.search_state import STOPPED
from determined.platform.search.searcher import Searcher
from determined.platform.search.simulation.simulator import simulate
from tests.platform.search.scripted import SPACE, halving


def measured(correlation: float, kept: float, count: int = 60) -> float:
    """Return the share that continues if the best `kept` of all trials reached the next rung."""
    drawn = random.Random(4)
    here = sorted(drawn.gauss(0, 1) for _ in range(count))
    agreement = Agreement()
    for number, value in enumerate(here[: int(kept * count)]):
        noise = drawn.gauss(0, (1 - correlation**2) ** 0.5)
        agreement.add(number, value, correlation * value + noise)
    return agreement.share(4, here)


def test_a_rung_that_predicts_keeps_its_share() -> None:
    assert measured(0.95, 1.0) == 0.25
    assert measured(0.95, 0.3) == 0.25  # though it shows less among the best


@pytest.mark.parametrize("correlation", [0.0, -0.9])
def test_more_continue_from_a_rung_that_misleads(correlation: float) -> None:
    assert measured(correlation, 1.0) > 0.7


def test_few_trials_prove_nothing_and_one_validation_compares_nothing() -> None:
    agreement = Agreement()
    for number in range(3):
        agreement.add(number, float(number), -1.0 - number)
    assert agreement.share(4, [0.0, 1.0, 2.0]) == 0.25
    for number in range(3, 50):
        agreement.add(number, float(number), float(number))
    assert agreement.share(4, [float(n) for n in range(50)]) == 0.25
    agreement.add(50, 3.0, -3.0)
    assert agreement.share(4, [0.0, 1.0, 2.0, 3.0]) > 0.25
    agreement.remove(50)
    assert agreement.share(4, [0.0, 1.0, 2.0, 3.0]) == 0.25


class Crossing:
    """Who is ahead after an epoch is behind at the end, or stays ahead."""

    def __init__(self, sign: float) -> None:
        self._sign = sign

    def value(self, hparams: dict[str, Any], seed: int, units: int) -> float:
        return float(hparams["lr"] * (1 if units == 1 else self._sign))

    def seconds(self, hparams: dict[str, Any], seed: int) -> float:
        return 1.0


@pytest.mark.parametrize("stop_once", [True, False])
def test_a_search_with_auto_trains_more_trials_longer_if_rungs_mislead(stop_once: bool) -> None:
    stopped = {}
    for sign in (1.0, -1.0):
        config = halving(sampler="auto", max_trials=60, stop_once=stop_once)
        searcher = Searcher(config, SPACE, 1)
        outcome = simulate(searcher, Crossing(sign), 2, [1, 4, 16])
        assert outcome.is_over
        stopped[sign] = sum(
            trial.status == STOPPED and len(trial.values) == 1 for trial in searcher.state.trials
        )
    assert stopped[-1.0] < 0.7 * stopped[1.0]
