"""The metrics that trials reported, one object per report."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from determined._contracts.replay_span import REPLAY
from determined.experimental._client.deprecation import warn_deprecated
from determined.experimental._client.session import Session


@dataclass
class TrialMetrics:
    """One report of a trial.

    Attributes:
        trial_id: The trial that reported it.
        trial_run_id: The run that reported it.
        steps_completed: Batches trained at that point.
        end_time: When it was reported.
        metrics: Names and values; NaN and infinities are kept.
        group: `training`, `validation` or another one.
        batch_metrics: Metrics of single batches; None if there are none.
    """

    trial_id: int
    trial_run_id: int
    steps_completed: int
    end_time: datetime
    metrics: dict[str, Any]
    group: str
    batch_metrics: list[dict[str, Any]] | None = None

    @property
    def total_batches(self) -> int:
        """An alias of `steps_completed`."""
        return self.steps_completed


class TrainingMetrics(TrialMetrics):
    """Deprecated: use TrialMetrics."""

    def __post_init__(self) -> None:
        warn_deprecated("TrainingMetrics", "TrialMetrics", stacklevel=3)


class ValidationMetrics(TrialMetrics):
    """Deprecated: use TrialMetrics."""

    def __post_init__(self) -> None:
        warn_deprecated("ValidationMetrics", "TrialMetrics", stacklevel=3)


def iter_reports(
    session: Session, trial_ids: Iterable[int], group: str | None
) -> Iterator[TrialMetrics]:
    """Yield the metrics of trials, ordered by trial id and step.

    A warning tells of a group that none of them has, with the groups that there are.
    """
    reader, is_empty = session.service.reader, True
    numbers = sorted(set(trial_ids))
    for trial_id in numbers:
        for report in reader.metrics.reports(trial_id, group):
            is_empty = False
            yield TrialMetrics(
                report.trial_id,
                report.run_id,
                report.steps_completed,
                datetime.fromtimestamp(report.time, timezone.utc),
                report.metrics,
                report.group,
                report.batch_metrics,
            )
        if group == REPLAY:
            for row in _of_replays(session, trial_id):
                is_empty = False
                yield row
    if is_empty and group not in (None, "training", "validation"):
        _warn_of_group(session, numbers, str(group))


def _of_replays(session: Session, trial_id: int) -> Iterator[TrialMetrics]:
    """Yield the rows of replays that were kept, which are not in the store; each is a run."""
    from determined.experimental._client.replays import kept_replays

    for number, kept in enumerate(kept_replays(session.service, trial_id), 1):
        time = datetime.fromtimestamp(kept["time"], timezone.utc)
        for row in kept["rows"]:
            yield TrialMetrics(
                trial_id, number, row["steps"], time, row["metrics"], REPLAY, row["batches"]
            )


def _warn_of_group(session: Session, trial_ids: Sequence[int], group: str) -> None:
    tables = session.service.reader.tables
    known = {name for number in trial_ids for name, _ in tables.summaries(number)}
    if known:
        warnings.warn(
            f"No metrics of group {group!r} were reported: the groups are "
            f"{', '.join(sorted(known))}.",
            stacklevel=3,
        )


def reports_of_users(
    session: Session, what: str, identifier: str, group: str | None
) -> Iterator[TrialMetrics]:
    """Yield the metrics of the trials that reported using a checkpoint or a model version."""
    return iter_reports(session, session.service.reader.tasks_using(what, identifier), group)
