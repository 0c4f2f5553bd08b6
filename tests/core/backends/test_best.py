"""The best validation so far: what is called best is what is remembered."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from determined.core.backends.best import Best

_value = st.floats() | st.integers(-9, 9) | st.none() | st.just("text")


@given(
    values=st.lists(_value, max_size=6),
    smaller_is_better=st.booleans(),
)
def test_a_validation_beats_the_best_exactly_if_it_becomes_it(
    values: list[Any], smaller_is_better: bool
) -> None:
    best = Best("m", smaller_is_better)
    for value in values:
        is_best, before = best.is_beaten_by({"m": value}), best.value
        best.note({"m": value})
        assert is_best == (best.value != before)
        is_number = isinstance(value, (int, float)) and not math.isnan(value)
        extreme = min if smaller_is_better else max
        assert is_best == (is_number and (before is None or extreme(value, before) != before))


def test_without_a_metric_nothing_is_best() -> None:
    assert not Best().is_beaten_by({"m": 1.0})
