"""What each method does, example by example."""

from __future__ import annotations

import math
from typing import Any

import pytest

from determined.platform.search import events as e
from determined.platform.search.methods.bracket_plans import (
    concurrency,
    plan_brackets,
    rung_counts,
    trial_shares,
)
from determined.platform.search.methods.halving import Halving
from determined.platform.search.methods.rung import rung_units
from determined.platform.search.settings import Settings
from tests.platform.search.scripted import Script, halving


def random(**changes: Any) -> dict[str, Any]:
    return {"name": "random", "metric": "loss", "max_trials": 5, **changes}


def test_single_is_one_trial_and_says_what_it_drew_from() -> None:
    search = Script({"name": "single", "metric": "loss"})
    assert search.start() == ["create T1"]
    assert "lr, n" in search.reasons[0]
    search.handle(e.Progress(search.rid(1), 0.25))
    assert search.searcher.progress() == 0.25
    assert search.exit(1) == ["shutdown"]
    assert search.searcher.progress() == 1.0


def test_single_that_fails_fails_the_experiment() -> None:
    search = Script({"name": "single", "metric": "loss"})
    search.start()
    assert search.early(1) == ["failure"]


def test_random_replaces_trials_with_invalid_hyperparameters() -> None:
    search = Script(random(max_concurrent_trials=2))
    assert search.start() == ["create T1", "create T2"]
    assert search.exit(1) == ["create T3"]
    assert search.early(2, e.INVALID_HP) == ["create T4"]
    assert search.exit(3) == ["create T5"]
    assert search.exit(4) == ["create T6"]
    assert search.exit(5) == []
    assert search.exit(6) == ["shutdown"]


def test_random_without_a_limit_starts_all_and_does_not_replace_failures() -> None:
    search = Script(random(max_concurrent_trials=0))
    assert len(search.start()) == 5
    assert search.early(1) == []
    assert search.early(2, e.USER_CANCELED) == []


def test_random_progress_is_the_mean_over_valid_trials() -> None:
    search = Script(random(max_concurrent_trials=2))
    search.start()
    search.handle(e.Progress(search.rid(1), 0.5))
    assert search.searcher.progress() == 0.25
    search.exit(1)
    assert search.searcher.progress() == pytest.approx(1 / 3)
    search.early(2, e.INVALID_HP)
    assert search.searcher.progress() == pytest.approx(1 / 3)


@pytest.mark.parametrize(("reason", "end"), [(e.ERRORED, "failure"), (e.USER_CANCELED, "cancel")])
def test_only_when_all_trials_fail_does_the_experiment(reason: str, end: str) -> None:
    search = Script(random(max_trials=2))
    search.start()
    assert search.early(1, reason) == []
    assert search.early(2, reason) == [end]
    search = Script(random(max_trials=2))
    search.start()
    search.early(1, reason)
    assert search.exit(2) == ["shutdown"]


def test_grid_goes_through_its_points_from_the_end() -> None:
    space = {
        "a": {"type": "int", "minval": 0, "maxval": 10, "count": 4},
        "b": {"type": "categorical", "vals": ["x", "y"]},
    }
    grid = {"name": "grid", "metric": "loss", "max_concurrent_trials": 2}
    search = Script(grid, space)
    assert search.start() == ["create T1", "create T2"]
    for trial in range(1, 9):
        search.exit(trial)
    points = [(c.hparams["a"], c.hparams["b"]) for c in search.created]
    assert points == [(a, b) for a in (10, 7, 3, 0) for b in ("y", "x")]
    assert search.searcher.is_over


def test_grid_does_not_replace_early_exits() -> None:
    space = {"a": {"type": "categorical", "vals": [1, 2]}}
    search = Script({"name": "grid", "metric": "loss"}, space)
    search.start()
    assert search.early(1, e.INVALID_HP) == []
    assert search.exit(2) == ["shutdown"]


def test_rung_units() -> None:
    assert rung_units(3, 4, 16) == [1, 4, 16]
    assert rung_units(4, 2, 20) == [2, 5, 10, 20]
    assert rung_units(3, 3, 500) == [55, 166, 500]


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


@pytest.mark.parametrize("bad", [{}, {"loss": math.nan}, {"loss": "0.1"}, {"loss": None}])
def test_a_metric_that_cannot_be_read_fails_only_its_trial(bad: dict[str, Any]) -> None:
    search = Script(halving())
    search.start()
    metrics = {"accuracy": 0.5, "epochs": 1, **bad}
    event = e.ValidationCompleted(search.rid(1), metrics, 100)
    assert search.handle(event) == ["fail_trial T1"]
    assert "`accuracy`, `epochs`" in search.reasons[0]
    assert "`loss`" in search.reasons[0]
    assert search.early(1) == ["create T3"]


def test_a_missing_time_metric_fails_the_trial_unless_it_is_batches() -> None:
    search = Script(halving())
    search.start()
    event = e.ValidationCompleted(search.rid(1), {"loss": 1.0}, 100)
    assert search.handle(event) == ["fail_trial T1"]
    assert "`epochs`" in search.reasons[0]
    search = Script(halving(time_metric="batches"))
    search.start()
    event = e.ValidationCompleted(search.rid(1), {"loss": 1.0}, 4)
    assert search.handle(event) == ["continue T1"]
    assert "at 4 batches" in search.reasons[0]


def test_a_failing_trial_that_exits_well_has_failed() -> None:
    search = Script(halving(max_trials=1))
    search.start()
    search.handle(e.ValidationCompleted(search.rid(1), {}, 1))
    assert search.exit(1) == ["failure"]


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


def test_the_same_traceback_in_three_trials_pauses_the_experiment() -> None:
    search = Script(random(max_trials=20, max_concurrent_trials=4))
    search.start()
    assert search.early(1, digest="abc") == ["create T5"]
    assert search.early(2, digest="xyz") == ["create T6"]
    assert search.early(3, digest="xyz") == ["create T7"]
    assert search.early(4, digest="xyz") == ["pause experiment", "create T8"]
    assert search.early(5, digest="xyz") == ["create T9"]


def test_a_validation_between_failures_clears_the_suspicion() -> None:
    search = Script(random(max_trials=20, max_concurrent_trials=4))
    search.start()
    search.early(1, digest="xyz")
    search.early(2, digest="xyz")
    search.validate(3, 1, 0.5)
    assert search.early(4, digest="xyz") == ["create T7"]


def test_nothing_starts_while_the_experiment_is_being_canceled() -> None:
    search = Script(halving())
    search.start()
    assert search.handle(e.Stopping()) == []
    assert search.early(1, e.USER_CANCELED) == []
    assert search.early(2, e.USER_CANCELED) == ["cancel"]
    assert search.handle(e.LimitsRaised(rerun_failed=True)) == ["resume T1", "resume T2"]


def test_an_unknown_trial_is_an_error_that_says_so() -> None:
    search = Script(halving())
    search.start()
    with pytest.raises(ValueError, match="not one of the 2 trials"):
        search.handle(e.TrialExited("nobody"))
