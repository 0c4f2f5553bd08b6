"""The search method of the example stops whom it should, and creates as many as it may."""

from __future__ import annotations

from typing import Any

from determined.platform.search.processes.custom_child import Search
from tests.examples.running import load_example

SETTINGS = {"metric": "accuracy", "max_trials": 5, "parallel": 2, "grace_trials": 3}
SPACE = {"learning_rate": {"type": "log", "base": 10, "minval": -3, "maxval": -1}}


def test_a_trial_below_the_median_of_its_step_is_stopped() -> None:
    search, method = begin()
    for trial, accuracy in enumerate([0.2, 0.8, 0.6]):
        method.validated(trial, {"accuracy": accuracy}, 1)
    assert search.take_orders() == []
    method.validated(3, {"accuracy": 0.7}, 1)
    method.validated(4, {"accuracy": 0.5}, 2)
    assert search.take_orders() == []
    method.validated(4, {"accuracy": 0.5}, 1)
    (order,) = search.take_orders()
    assert (order["order"], order["trial"]) == ("stop", 4)
    assert order["reason"] == "0.500 after 1 steps, half of the others had 0.650"


def test_trials_follow_each_other_up_to_the_limit() -> None:
    search, method = begin()
    for trial in range(5):
        method.ended(trial, None)
    created = [order for order in search.take_orders() if order["order"] == "create"]
    assert len(created) == 3
    assert all(1e-3 <= order["hparams"]["learning_rate"] <= 1e-1 for order in created)


def begin() -> tuple[Search, Any]:
    """The method after its start, when it has created the first two."""
    search = Search(SETTINGS, SPACE, seed=1)
    method = load_example("custom_searcher", "median_stopping").MedianStopping(search)
    method.start()
    assert [order["order"] for order in search.take_orders()] == ["create", "create"]
    return search, method
