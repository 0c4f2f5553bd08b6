"""Metrics as searches read them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from determined.platform.search import events as e
from tests.platform.search.scripted import Script, halving


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
