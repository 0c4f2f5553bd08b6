"""Searches of brackets: adaptive and asynchronous halving."""

from __future__ import annotations

import pytest

from determined.platform.search import events as e
from determined.platform.search.methods.halving import Halving
from tests.platform.search.scripted import Script, halving


def test_async_halving_decides_as_in_the_worked_example() -> None:
    search = Script(halving())
    assert search.start() == ["create T1", "create T2"]
    assert search.validate(1, 1, 0.9) == ["continue T1"]
    assert search.validate(2, 1, 0.8) == ["continue T2"]
    assert search.validate(1, 2, 0.75) == []
    assert search.validate(2, 4, 0.5) == ["continue T2"]
    assert search.validate(1, 4, 0.7) == ["stop T1", "create T3"]
    assert search.reasons[0] == "stopped at 4 epochs: rank 2 of 2, the best 1 continues"
    assert search.validate(3, 1, 0.85) == ["stop T3", "create T4"]
    assert search.validate(4, 1, 0.6) == ["continue T4"]
    assert search.validate(2, 16, 0.2) == ["stop T2", "create T5"]
    method = search.searcher._method
    assert isinstance(method, Halving)
    rungs = [rung.values for rung in method.brackets[0].rungs]
    assert rungs == [[0.6, 0.8, 0.85, 0.9], [0.5, 0.7], [0.2]]


def test_one_validation_may_pass_several_rungs() -> None:
    search = Script(halving())
    search.start()
    assert search.validate(1, 16, 0.5) == ["stop T1", "create T3"]
    assert "last rung" in search.reasons[0]


def test_a_larger_metric_can_be_better() -> None:
    search = Script(halving(smaller_is_better=False))
    search.start()
    search.validate(1, 1, 0.9)
    assert search.validate(2, 1, 0.8) == ["stop T2", "create T3"]


def test_automatic_concurrency_starts_what_the_top_rung_needs() -> None:
    assert len(Script(halving(max_concurrent_trials=0, max_trials=99)).start()) == 16
    assert len(Script(halving(max_concurrent_trials=0, max_trials=5)).start()) == 5


def test_validations_after_a_stop_change_nothing() -> None:
    search = Script(halving())
    search.start()
    search.validate(1, 1, 0.1)
    search.validate(2, 1, 0.5)
    for epoch in (2, 4, 16):
        assert search.validate(2, epoch, 0.0) == []
    assert search.exit(2) == []
    assert search.exit(2) == []


def test_a_trial_that_ends_before_the_top_rung_is_replaced() -> None:
    search = Script(halving(max_trials=4))
    search.start()
    assert search.exit(1) == ["create T3"]
    assert search.exit(2) == ["create T4"]
    assert search.exit(3) == []
    assert search.exit(4) == ["shutdown"]


def test_invalid_hyperparameters_leave_the_rungs_and_are_replaced() -> None:
    search = Script(halving(max_trials=2))
    search.start()
    search.validate(1, 1, 0.1)
    assert search.early(1, e.INVALID_HP) == ["create T3"]
    assert search.validate(2, 1, 0.5) == ["continue T2"]
    assert "rank 1 of 1" in search.reasons[0]


def test_a_failed_trial_counts_as_the_worst_of_its_rung() -> None:
    search = Script(halving(max_trials=3))
    search.start()
    search.validate(1, 1, 0.1)
    assert search.early(1) == ["create T3"]
    search.validate(2, 4, 0.0)
    assert "rank 1 of 2" in search.reasons[0]
    assert search.early(2) == []
    assert search.early(2) == []


def test_adaptive_creates_bracket_by_bracket() -> None:
    search = Script(
        halving(name="adaptive_asha", max_trials=12, max_time=50, max_concurrent_trials=3)
    )
    assert len(search.start()) == 3
    brackets = [trial.bracket for trial in search.searcher.state.trials]
    assert brackets == [0, 0, 1]
    assert search.validate(3, 12, 0.5) == []
    assert search.validate(3, 50, 0.5) == ["stop T3", "create T4"]
    assert search.searcher.state.trials[3].bracket == 1


def test_halving_progress() -> None:
    search = Script(halving(max_trials=2))
    search.start()
    search.validate(1, 1, 0.5)
    assert search.searcher.progress() == pytest.approx(1 / 2.4)
    search.validate(2, 1, 0.6)
    assert search.searcher.progress() == pytest.approx(2 / 2.4)
    search.exit(2)
    assert search.searcher.progress() == pytest.approx(2 / 2.4)
