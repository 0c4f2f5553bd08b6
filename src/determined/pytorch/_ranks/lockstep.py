"""Validation of sharded models: every forward pass needs all ranks, so all make the same number."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator
from typing import Any

from determined.core._distributed import DistributedContext
from determined.pytorch._metrics.metric_object import MetricObjectReducer
from determined.pytorch._metrics.reducer import MetricReducer

_NONE = object()


def in_step(batches: Iterable[Any], distributed: DistributedContext) -> Iterator[tuple[Any, bool]]:
    """Yield batches, and of each whether it is to count; equally many on every rank.

    A rank that runs out of batches gets its last one again; one that had none, another rank's.
    """
    own_batches = iter(batches)
    last: Any = _NONE
    while True:
        batch = next(own_batches, _NONE)
        has_batch = distributed.allgather(batch is not _NONE)
        if not any(has_batch):
            return
        if last is _NONE and not all(has_batch):
            lender = has_batch.index(True)
            lent = batch if distributed.rank == lender else None
            last = distributed.allgather(lent)[lender]
        is_own = batch is not _NONE
        if is_own:
            last = batch
        yield last, is_own


@contextlib.contextmanager
def kept_as_they_are(reducers: Iterable[MetricReducer]) -> Iterator[None]:
    """Undo what the block does to reducers."""
    kept = [(reducer, _kept(reducer)) for reducer in reducers]
    try:
        yield
    finally:
        for reducer, state in kept:
            if isinstance(reducer, MetricObjectReducer):
                reducer.load_state_dict(state)
            else:
                vars(reducer).clear()
                vars(reducer).update(state)


def _kept(reducer: MetricReducer) -> dict[str, Any]:
    if isinstance(reducer, MetricObjectReducer):  # the trial holds the metric, which must stay
        return copy.deepcopy(reducer.state_dict())
    return copy.deepcopy(vars(reducer))
