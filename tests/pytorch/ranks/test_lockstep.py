"""Ranks with unequal numbers of batches make equally many steps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.core._distributed import DistributedContext
from determined.pytorch import MetricReducer
from determined.pytorch._ranks.lockstep import in_step, kept_as_they_are
from tests.support.workers import run_threads


@settings(max_examples=5, deadline=None)
@given(lengths=st.lists(st.integers(0, 3), min_size=2, max_size=3))
def test_all_ranks_make_as_many_steps_and_each_batch_counts_once(lengths: list[int]) -> None:
    def steps(context: DistributedContext) -> list[tuple[Any, bool]]:
        batches = [(context.rank, i) for i in range(lengths[context.rank])]
        return list(in_step(batches, context))

    results = run_threads((1, len(lengths)), steps)
    for rank, result in enumerate(results):
        assert len(result) == max(lengths)
        assert [b for b, counts in result if counts] == [(rank, i) for i in range(lengths[rank])]
        assert all(isinstance(batch, tuple) for batch, _ in result)


class _Sum(MetricReducer):
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.values: list[int] = []

    def per_slot_reduce(self) -> int:
        return sum(self.values)

    def cross_slot_reduce(self, per_slot_metrics: list[int]) -> int:
        return sum(per_slot_metrics)


def test_reducers_forget_what_does_not_count() -> None:
    reducer = _Sum()
    reducer.values.append(1)

    def step() -> None:
        with kept_as_they_are([reducer]):
            reducer.values.append(2)
            raise KeyError

    with pytest.raises(KeyError):
        step()
    assert reducer.values == [1]
