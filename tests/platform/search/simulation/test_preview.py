"""What a search says of itself before it starts."""

from __future__ import annotations

from typing import Any

import pytest

from determined.platform.search.simulation.preview import preview
from tests.platform.search.scripted import SPACE, halving


def adaptive(**changes: Any) -> dict[str, Any]:
    usual = {"name": "adaptive_asha", "metric": "loss", "time_metric": "epochs"}
    return {**usual, **changes}


@pytest.mark.parametrize(
    ("search", "lines"),
    [
        ({"name": "single", "metric": "loss"}, ["1 trials, train to completion"]),
        (
            {"name": "random", "metric": "loss", "max_trials": 7},
            ["7 trials, train to completion"],
        ),
        (
            {"name": "custom", "metric": "loss", "class": "a:B"},
            ["as many trials as the method creates"],
        ),
    ],
)
def test_searches_without_rungs_train_to_completion(
    search: dict[str, Any], lines: list[str]
) -> None:
    assert preview(search, SPACE).lines() == lines


def test_the_size_of_a_grid_is_told() -> None:
    space = {"a": {"type": "int", "minval": 0, "maxval": 10, "count": 4}, "b": 3}
    found = preview({"name": "grid", "metric": "loss"}, space, max_length=10)
    assert found.num_trials == 4
    assert found.most_units == 40


def test_trials_that_end_at_each_rung_of_adaptive_searches() -> None:
    found = preview(adaptive(max_trials=64, max_time=64), SPACE)
    assert found.ends == {1: 34, 4: 20, 16: 7, 64: 3}
    assert found.lines()[0] == "34 trials end at 1 epochs"
    found = preview(adaptive(max_trials=20, max_time=80000, max_concurrent_trials=6), SPACE)
    assert found.ends == {5000: 12, 20000: 6, 80000: 2}
    assert found.predicted_units == 5000 * 12 + 20000 * 6 + 80000 * 2
    assert found.most_units == 20 * 80000
    assert found.predicted_share == pytest.approx(0.2125)


def test_async_halving_is_one_bracket() -> None:
    found = preview(halving(max_trials=64), SPACE)
    assert found.ends == {1: 48, 4: 12, 16: 4}


def test_an_estimate_comes_from_a_simulation() -> None:
    found = preview(halving(max_trials=64), SPACE)
    assert found.estimate is not None
    assert found.most_units is not None
    assert found.estimate.least <= found.estimate.units <= found.estimate.most <= found.most_units
    assert found.estimate.full_trials >= 1
    assert 0.05 < found.estimate.share < 0.8
    assert found == preview(halving(max_trials=64), SPACE)


@pytest.mark.parametrize(
    ("trials", "words"),
    [(8, "so all of these 8 trials are random"), (20, "so at least the first 12 of these 20")],
)
def test_too_few_trials_for_a_model_are_warned_about(trials: int, words: str) -> None:
    settings = {"name": "random", "metric": "loss", "sampler": "tpe"}
    (warning,) = preview({**settings, "max_trials": trials}, SPACE).warnings
    assert words in warning
    assert preview({**settings, "max_trials": 24}, SPACE).warnings == []


def test_a_rung_before_the_first_real_training_is_warned_about() -> None:
    (warning,) = preview(halving(), SPACE).warnings
    assert "the first rung is at 1 epochs" in warning
    assert "num_rungs: 2" in warning
    assert preview(halving(num_rungs=2), SPACE).warnings == []
    (warning,) = preview(adaptive(max_trials=64, max_time=64), SPACE).warnings
    assert "max_rungs: 3" in warning
    assert preview(adaptive(max_trials=64, max_time=64, max_rungs=3), SPACE).warnings == []


def test_a_single_search_with_ranges_is_warned_about() -> None:
    (warning,) = preview({"name": "single", "metric": "loss"}, SPACE).warnings
    assert "lr, n" in warning
    assert preview({"name": "single", "metric": "loss"}, {"lr": 0.1}).warnings == []
