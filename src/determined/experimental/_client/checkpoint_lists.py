"""Lists of checkpoints: their order, and which are best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from determined.experimental._client.checkpoint import Checkpoint
from determined.experimental._client.enums import AnyOrder, CheckpointSortBy, is_descending
from determined.experimental._client.session import Session
from determined.platform.queries.outcome import best_first
from determined.store import CheckpointFilter, Experiment, RatedCheckpoint


def list_checkpoints(
    session: Session,
    where: CheckpointFilter,
    experiment: Experiment,
    sort_by: str | CheckpointSortBy | None,
    order_by: AnyOrder | None,
    max_results: int | None,
) -> list[Checkpoint]:
    """List checkpoints in order; by default, best first by the searcher's metric."""
    assert (sort_by is None) == (order_by is None), (
        "Give both `sort_by` and `order_by`, or neither."
    )
    if max_results is not None and max_results < 0:
        raise ValueError(f"`max_results` must not be negative, got {max_results}.")
    descending = is_descending(order_by) if order_by is not None else None
    found = _ordered(session, where, experiment, sort_by, descending)
    return [Checkpoint._of(item.checkpoint, session) for item in found[:max_results]]


def best_checkpoints(
    session: Session,
    where: CheckpointFilter,
    experiment: Experiment,
    sort_by: str | None,
    smaller_is_better: bool | None,
) -> list[Checkpoint]:
    """List checkpoints, best first; the configuration says what is better.

    Those without the metric come last.
    """
    if sort_by is None and smaller_is_better is not None:
        raise AssertionError("Give `smaller_is_better` only together with `sort_by`.")
    smaller = experiment.smaller_is_better if smaller_is_better is None else smaller_is_better
    found = _ordered(session, where, experiment, sort_by, not smaller)
    return [Checkpoint._of(item.checkpoint, session) for item in found]


def _ordered(
    session: Session,
    where: CheckpointFilter,
    experiment: Experiment,
    sort_by: str | CheckpointSortBy | None,
    descending: bool | None,
) -> list[RatedCheckpoint]:
    if sort_by is not None and not isinstance(sort_by, (str, CheckpointSortBy)):
        raise ValueError(
            f"`sort_by` must be the name of a metric or a CheckpointSortBy, got {sort_by!r}."
        )
    metric = sort_by if isinstance(sort_by, str) else None
    rated = session.service.reader.rated_checkpoints(where, metric)
    if isinstance(sort_by, CheckpointSortBy) and sort_by is not CheckpointSortBy.SEARCHER_METRIC:
        field = sort_by.value
        key: Callable[[RatedCheckpoint], Any] = lambda r: getattr(r.checkpoint, field)  # noqa: E731
        return sorted(rated, key=key, reverse=bool(descending))
    smaller_first = experiment.smaller_is_better if descending is None else not descending
    return best_first(rated, smaller_first)
