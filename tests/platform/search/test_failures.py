"""Failures of trials: when one fails the experiment, and when several pause it."""

from __future__ import annotations

from typing import Any

import pytest

from determined.platform.search import events as e
from tests.platform.search.scripted import Script, halving


def random(**changes: Any) -> dict[str, Any]:
    return {"name": "random", "metric": "loss", "max_trials": 5, **changes}


def test_single_that_fails_fails_the_experiment() -> None:
    search = Script({"name": "single", "metric": "loss"})
    search.start()
    assert search.early(1) == ["failure"]


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


def test_a_failing_trial_that_exits_well_has_failed() -> None:
    search = Script(halving(max_trials=1))
    search.start()
    search.handle(e.ValidationCompleted(search.rid(1), {}, 1))
    assert search.exit(1) == ["failure"]


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
