"""The metrics that trials reported, one object per report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

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
    """Yield the metrics of trials, ordered by trial id and step."""
    reader = session.service.reader
    for trial_id in sorted(set(trial_ids)):
        for report in reader.iter_metrics(trial_id, group):
            yield TrialMetrics(
                report.trial_id,
                report.run_id,
                report.steps_completed,
                datetime.fromtimestamp(report.time, timezone.utc),
                report.metrics,
                report.group,
                report.batch_metrics,
            )


def reports_of_users(
    session: Session, what: str, identifier: str, group: str | None
) -> Iterator[TrialMetrics]:
    """Yield the metrics of the trials that reported using a checkpoint or a model version."""
    return iter_reports(session, session.service.reader.tasks_using(what, identifier), group)
