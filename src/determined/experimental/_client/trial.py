"""Trials: one sample of hyperparameters, its metrics, logs and checkpoints."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import cached_property
from time import sleep
from typing import TYPE_CHECKING, Any, ClassVar

from determined.experimental._client.checkpoint import (
    Checkpoint,
    best_checkpoints,
    list_checkpoints,
)
from determined.experimental._client.deprecation import deprecated, warn_deprecated
from determined.experimental._client.enums import (
    AnyOrder,
    CheckpointSortBy,
    LogLevel,
    TrialOrderBy,
    TrialSortBy,
    TrialState,
)
from determined.experimental._client.metrics import (
    TrainingMetrics,
    TrialMetrics,
    ValidationMetrics,
    iter_reports,
)
from determined.experimental._client.replays import kept_replays, replay_trial
from determined.experimental._client.session import Session
from determined.experimental._client.stored import StoredObject, as_datetime

if TYPE_CHECKING:
    import pandas as pd

    from determined.experimental._client.experiment import Experiment
    from determined.platform.debugging.replay import Replayed
    from determined.platform.queries.logs import LogEntry, LogFilter
    from determined.store import Trial as Record

__all__ = [
    "LogLevel",
    "TrainingMetrics",
    "Trial",
    "TrialMetrics",
    "TrialOrderBy",
    "TrialReference",
    "TrialSortBy",
    "TrialState",
    "ValidationMetrics",
]

_POLL_SECONDS = 0.2


class Trial(StoredObject):
    """A trial of an experiment.

    Attributes:
        id: Its id.
        experiment_id: The experiment it belongs to.
        hparams: Its hyperparameters.
        state: A `TrialState`.
        metadata: Metadata reported by its code.
        steps_completed: How many batches it has trained.
        progress: Progress from 0 to 1.
        restarts: How many times it was restarted after a failure.
        start_time: When its first run started.
        end_time: When it ended.
        best_validation: The best value of the searcher's metric; None before the first validation.
        reason: Why it ended.
    """

    # Set by `experiment.py`: the two classes know each other, their modules need not.
    _experiment_class: ClassVar[Callable[[int, Session], Experiment]]

    def __init__(self, trial_id: int, session: Session) -> None:
        self._session = session
        self._hydrate(session.service.trial(trial_id))

    def _hydrate(self, record: Record) -> None:
        self._record = record
        self.id = record.id
        self.experiment_id = record.experiment_id
        self.hparams = dict(record.hparams)
        self.state = TrialState(f"STATE_{record.state}")
        self.metadata = dict(record.metadata)
        self.steps_completed = record.total_batches
        self.progress = record.progress
        self.restarts = record.restarts
        self.start_time = as_datetime(record.started)
        self.end_time = as_datetime(record.ended)
        self.best_validation = record.best_validation
        self.reason = record.reason
        self.__dict__.pop("summary_metrics", None)

    def _identity(self) -> int:
        return self.id

    def _facts(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "experiment_id": self.experiment_id,
            "state": self.state,
            "steps_completed": self.steps_completed,
            "best_validation": self.best_validation,
            "hparams": self.hparams,
        }

    def reload(self) -> None:
        """Read the current values."""
        self._hydrate(self._session.service.trial(self.id))

    @cached_property
    def summary_metrics(self) -> dict[str, dict[str, dict[str, Any]]]:
        """A summary of each metric, by group (`avg_metrics` for training, `validation_metrics`):
        last, min, max, sum, mean, count and type.
        """
        groups = self._session.service.reader.metrics.summaries(self.id)
        return {
            group: {name: _summary(summary) for name, summary in metrics.items()}
            for group, metrics in groups.items()
        }

    def get_experiment(self) -> Experiment:
        """Return the experiment it belongs to."""
        return type(self)._experiment_class(self.experiment_id, self._session)

    def fork(
        self,
        at: int,
        hparams: Mapping[str, Any] | None = None,
        name: str | None = None,
        *,
        max_length: int | None = None,
        seed: int | None = None,
    ) -> Experiment:
        """Create an experiment with one trial, whose first batches are those of this one.

        Unchanged, it ends with the same weights. It starts from the newest checkpoint at or before
        the batch, and trains what is missing as this trial did.

        Args:
            at: The number of batches that both share.
            hparams: Hyperparameters that change from there on; nested ones by names with dots.
            name: The experiment's name.
            max_length: How long it trains, in the unit of the configuration; by default as long as
                this one.
            seed: Other random numbers from there on.
        """
        from determined.platform.service.forking import Forks

        number = Forks(self._session.service).create(
            self.id, at, hparams, name=name, max_length=max_length, seed=seed
        )
        return type(self)._experiment_class(number, self._session)

    def replay(
        self,
        batches: tuple[int, int],
        callbacks: Sequence[type | str] = (),
        *,
        report: bool = False,
        processes: int = 1,
    ) -> Replayed:
        """Train batches again, exactly, and compare them with the record; nothing changes.

        `str()` of the result says "identical through batch N", or where it leaves the record;
        `rows` has what was reported.

        Args:
            batches: The first and the last one, counted from 1.
            callbacks: Classes of callbacks that see the batches, which can be imported from a file,
                or their names, `module:Class`.
            report: Keep what is reported, for `replays()`.
            processes: Cut the span at checkpoints, and train so many parts at once.
        """
        return replay_trial(
            self._session.service, self.id, batches, callbacks, report=report, processes=processes
        )

    def replays(self) -> list[dict[str, Any]]:
        """Return the replays that were kept, oldest first: `batches`, `verdict`, `rows`."""
        return kept_replays(self._session.service, self.id)

    def kill(self) -> None:
        """Kill it: it ends at once, and its search continues without it."""
        self._session.service.kill_trial(self.id)
        self.reload()

    # Logs

    def iter_logs(
        self,
        follow: bool = False,
        *,
        head: int | None = None,
        tail: int | None = None,
        container_ids: Sequence[str] | None = None,
        rank_ids: Sequence[int] | None = None,
        stdtypes: Sequence[str] | None = None,
        min_level: LogLevel | None = None,
        timestamp_before: str | int | None = None,
        timestamp_after: str | int | None = None,
        sources: Sequence[str] | None = None,
        search_text: str | None = None,
    ) -> Iterable[str]:
        """Yield the lines of its log over all runs, each ending in a newline.

        Args:
            follow: Keep yielding new lines until the trial ends.
            head: Only this many lines from the start.
            tail: Only this many lines from the end.
            container_ids: Accepted, without effect: there are no containers.
            rank_ids: Only lines of these ranks.
            stdtypes: Accepted, without effect: both streams go to one log.
            min_level: Only lines of this level or above; lines without a level count as INFO.
            timestamp_before: Only earlier lines: RFC 3339, or seconds since 1970 (UTC).
            timestamp_after: Only lines from this time on.
            sources: Accepted, without effect: all lines come from the trial.
            search_text: Only lines that contain this text.
        """
        for name, number in (("head", head), ("tail", tail)):
            if number is not None and number < 0:
                raise ValueError(f"`{name}` must not be negative, got {number}.")
        if sum([follow, head is not None, tail is not None]) > 1:
            raise ValueError("Give at most one of `follow`, `head` and `tail`.")
        wanted = _log_filter(rank_ids, min_level, timestamp_before, timestamp_after, search_text)
        return _iter_lines(self._session, self.id, wanted, follow, head, tail)

    @deprecated("Trial.iter_logs()")
    def logs(self, *args: Any, **kwargs: Any) -> Iterable[str]:
        """Yield the lines of its log."""
        return self.iter_logs(*args, **kwargs)

    # Metrics

    def iter_metrics(self, group: str | None = None) -> Iterable[TrialMetrics]:
        """Yield its metrics, of one group such as `training` or of all.

        The group `replay` has what replays reported that were kept, with their numbers as runs;
        it is not among "all".
        """
        return iter_reports(self._session, [self.id], group)

    @deprecated("Trial.iter_metrics()")
    def stream_metrics(self, group: str | None = None) -> Iterable[TrialMetrics]:
        """Yield its metrics."""
        return self.iter_metrics(group)

    @deprecated('Trial.iter_metrics("training")')
    def stream_training_metrics(self) -> Iterable[TrialMetrics]:
        """Yield its training metrics."""
        return self.iter_metrics("training")

    @deprecated('Trial.iter_metrics("validation")')
    def stream_validation_metrics(self) -> Iterable[TrialMetrics]:
        """Yield its validation metrics."""
        return self.iter_metrics("validation")

    def to_dataframe(self, group: str | None = None) -> pd.DataFrame:
        """Return its metrics as a pandas.DataFrame, one row per report.

        The index is `steps_completed`. Without a `group`, a column holds the group of each row.
        """
        from determined.experimental._client.frames import reports_frame

        return reports_frame(self.iter_metrics(group), group)

    # Checkpoints

    def list_checkpoints(
        self,
        sort_by: str | CheckpointSortBy | None = None,
        order_by: AnyOrder | None = None,
        max_results: int | None = None,
    ) -> list[Checkpoint]:
        """List its checkpoints in any state; by default, best first by the searcher's metric.

        Args:
            sort_by: The name of a validation metric, or a `CheckpointSortBy`.
            order_by: Ascending or descending; needs `sort_by`.
            max_results: The maximum number of checkpoints.
        """
        from determined.store import CheckpointFilter

        where = CheckpointFilter(trial_id=self.id)
        experiment = self._session.service.experiment(self.experiment_id)
        return list_checkpoints(self._session, where, experiment, sort_by, order_by, max_results)

    @deprecated("Trial.list_checkpoints()")
    def get_checkpoints(self, *args: Any, **kwargs: Any) -> list[Checkpoint]:
        """List its checkpoints."""
        return self.list_checkpoints(*args, **kwargs)

    @deprecated("Trial.list_checkpoints(max_results=1)[0]")
    def top_checkpoint(
        self, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> Checkpoint:
        """Return its best checkpoint by a validation metric."""
        return self._best(sort_by, smaller_is_better)

    @deprecated("Trial.list_checkpoints()")
    def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: str | None = None,
        sort_by: str | None = None,
        smaller_is_better: bool | None = None,
    ) -> Checkpoint:
        """Return one of its checkpoints: the latest, the best, or the one with a given UUID."""
        assert sum([latest, best, uuid is not None]) == 1, (
            "Give exactly one of `latest`, `best` and `uuid`."
        )
        assert best or (sort_by is None and smaller_is_better is None), (
            "Give `sort_by` and `smaller_is_better` only with `best`."
        )
        if best:
            return self._best(sort_by, smaller_is_better)
        if latest:
            return self._latest()
        found = Checkpoint(str(uuid), self._session)
        assert found._record.trial_id == self.id, (
            f"Checkpoint {uuid} does not belong to trial {self.id}."
        )
        return found

    def _best(self, sort_by: str | None, smaller_is_better: bool | None) -> Checkpoint:
        from determined.store import CheckpointFilter

        where = CheckpointFilter(trial_id=self.id, states=["COMPLETED"])
        experiment = self._session.service.experiment(self.experiment_id)
        found = best_checkpoints(self._session, where, experiment, sort_by, smaller_is_better)
        assert found, f"Trial {self.id} has no checkpoint."
        return found[0]

    def _latest(self) -> Checkpoint:
        from determined.store import CheckpointFilter, Order

        where = CheckpointFilter(trial_id=self.id, states=["COMPLETED"])
        order = Order("steps_completed", descending=True)
        found = self._session.service.reader.checkpoints(where, order, limit=1).rows
        assert found, f"Trial {self.id} has no checkpoint."
        return Checkpoint._of(found[0], self._session)


class TrialReference(Trial):
    """Deprecated: use Trial."""

    def __init__(self, trial_id: int, session: Session) -> None:
        warn_deprecated("TrialReference", "Trial")
        super().__init__(trial_id, session)


def _summary(summary: Any) -> dict[str, Any]:
    names = ("type", "last", "count", "sum", "min", "max", "mean")
    values = {name: getattr(summary, name) for name in names}
    return {name: value for name, value in values.items() if value is not None or name == "last"}


def trial_pages(session: Session, where: Any, order: Any, limit: int | None) -> Iterator[Trial]:
    """Yield trials, read page by page."""
    cursor, left = None, limit
    while left is None or left > 0:
        size = 1000 if left is None else min(1000, left)
        page = session.service.reader.trials(where, order, size, cursor)
        yield from (Trial._of(record, session) for record in page.rows)
        left = None if left is None else left - len(page.rows)
        cursor = page.next
        if cursor is None:
            return


def _log_filter(
    rank_ids: Sequence[int] | None,
    min_level: LogLevel | None,
    before: str | int | None,
    after: str | int | None,
    search_text: str | None,
) -> LogFilter:
    """Read the arguments of `iter_logs`."""
    from determined.platform.queries.logs import LogFilter

    if min_level is not None and not isinstance(min_level, LogLevel):
        raise ValueError(f"`min_level` must be a LogLevel, got {min_level!r}.")
    return LogFilter(
        ranks=frozenset(rank_ids or ()),
        level=None if min_level is None else min_level.name,
        after=_seconds("timestamp_after", after),
        before=_seconds("timestamp_before", before),
        search=None if search_text is None else re.compile(re.escape(search_text)),
    )


def _iter_lines(
    session: Session,
    trial_id: int,
    wanted: LogFilter,
    follow: bool,
    head: int | None,
    tail: int | None,
) -> Iterator[str]:
    """Yield the lines that are wanted."""
    from determined.platform.queries.logs import read_logs, tail_logs

    entries: Iterable[LogEntry]
    if follow:
        entries = _follow(session, trial_id, wanted)
    elif tail is not None:
        entries = tail_logs(session.service.reader.runs(trial_id), wanted, tail)
    else:
        entries = itertools.islice(read_logs(session.service.reader.runs(trial_id), wanted), head)
    for entry in entries:
        yield f"{entry.line.text}\n"


def _follow(session: Session, trial_id: int, wanted: LogFilter) -> Iterator[LogEntry]:
    from determined.platform.queries.logs import LogFollower
    from determined.store import TERMINAL_STATES

    service = session.service
    follower = LogFollower(service.reader, wanted)
    is_over = False
    while True:
        is_last = is_over  # what was written before it was over is read once more
        yield from follower.poll([trial_id])
        if is_last:
            return
        is_over = service.trial(trial_id).state in TERMINAL_STATES
        if not is_over:
            service.wake_if_needed()
            sleep(_POLL_SECONDS)


def _seconds(name: str, time: str | int | float | None) -> float | None:
    """A time: RFC 3339 text (UTC unless it says otherwise), or seconds since 1970."""
    if time is None or isinstance(time, (int, float)):
        return time
    try:
        # Python 3.10 does not know the Z.
        read = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", time.strip()))
    except (ValueError, AttributeError):
        raise ValueError(
            f"`{name}` must be a time such as 2026-01-31T12:00:00Z or seconds since 1970, "
            f"got {time!r}."
        ) from None
    return (read if read.tzinfo else read.replace(tzinfo=timezone.utc)).timestamp()
