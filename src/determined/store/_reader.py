"""Questions to the store, for doors and dashboards; nothing here can write or block the writer."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined._retention import Candidate, Retention, kept
from determined.errors import StoreError, StoreVersionError
from determined.journal import BatchColumns
from determined.store._changes import Changed, ChangeWatch, NewPoints, Position, new_points, since
from determined.store._connection import FILE_NAME, is_outdated, open_read_only
from determined.store._listing import Tables
from determined.store._pages import (
    CHECKPOINT_ORDERS,
    EXPERIMENT_ORDERS,
    TRIAL_ORDERS,
    CheckpointFilter,
    Cursor,
    ExperimentFilter,
    Order,
    Page,
    TrialFilter,
    Where,
    read_page,
)
from determined.store._records import (
    CHECKPOINTS,
    COMMANDS,
    DELETIONS,
    EVENTS,
    EXPERIMENTS,
    MODEL_VERSIONS,
    MODELS,
    OVER_STATES,
    PROJECTS,
    RUNS,
    SAMPLES,
    SEARCH_STEPS,
    TERMINAL_STATES,
    TRIALS,
    WORKSPACES,
    Checkpoint,
    Command,
    Deletion,
    Event,
    Experiment,
    Model,
    ModelVersion,
    Project,
    RatedCheckpoint,
    Report,
    Run,
    Samples,
    SearchStep,
    Trial,
    Workspace,
)
from determined.store._rows import read_searcher_state
from determined.store._summary import Summary, type_of
from determined.store._trial_tally import read_summaries

if TYPE_CHECKING:
    from determined.store._curves import Curve, CurveKey

_SUMMARY_KEYS = {"training": "avg_metrics", "validation": "validation_metrics"}
_PAGE = 1000
_REPORT_COLUMNS = "id, trial_id, run_id, grp, steps, time, metrics, batches, archived"


class _Held:
    """A connection that is closed when nobody holds it: its thread ended, or the reader closed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        self.connection.close()


class Reader:
    """Reads the store of a home; may be shared by threads, each gets its own connection."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._local = threading.local()
        self._all: weakref.WeakSet[_Held] = weakref.WeakSet()
        self._guard = threading.Lock()
        if is_outdated(self._connection):
            self.close()
            raise StoreVersionError(
                f"{home / FILE_NAME} has an older schema: start the supervisor, which updates it."
            )

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._guard:
            for held in list(self._all):
                held.connection.close()
            self._all.clear()
        self._local = threading.local()

    @property
    def _connection(self) -> sqlite3.Connection:
        held: _Held | None = getattr(self._local, "held", None)
        if held is None:
            held = self._local.held = self._open()
        return held.connection

    def _open(self) -> _Held:
        held = _Held(open_read_only(self._home))
        with self._guard:
            self._all.add(held)
        return held

    def data_version(self) -> int:
        """A number that changes, for this thread, whenever something was committed."""
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def version_probe(self) -> Callable[[], int]:
        """A question like `data_version` for all threads, of which one at a time may ask it."""
        held = self._open()
        return lambda: int(held.connection.execute("PRAGMA data_version").fetchone()[0])

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All questions of this thread within the `with` block see one state of the store."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    @property
    def tables(self) -> Tables:
        """Lists with totals, any column to sort by and pages by number."""
        return Tables(self._connection)

    def watch(self) -> ChangeWatch:
        """Something that tells what changes from now on; for this thread."""
        return ChangeWatch(self._connection)

    def changed_since(self, position: Position) -> Changed:
        """Whom the reports, events and commands after a position are about."""
        return since(self._connection, position)

    def new_points(
        self, keys: Sequence[CurveKey], after: int, limit: int = 2000
    ) -> tuple[dict[CurveKey, NewPoints], int]:
        """What curves got after a report, and the report up to which that is all."""
        return new_points(self._connection, keys, after, limit)

    # Experiments, trials, runs

    def experiment(self, experiment_id: int) -> Experiment | None:
        """An experiment, None if there is no such id."""
        return EXPERIMENTS.find(self._connection, "id=?", experiment_id)

    def experiments(
        self,
        where: ExperimentFilter = ExperimentFilter(),  # noqa: B008  # a frozen value
        order: Order = Order(),  # noqa: B008
        limit: int | None = None,
        after: Cursor | None = None,
    ) -> Page[Experiment]:
        """A page of experiments."""
        return read_page(
            self._connection, EXPERIMENTS, where.where(), order, EXPERIMENT_ORDERS, limit, after
        )

    def trial(self, trial_id: int) -> Trial | None:
        """A trial, None if there is no such id."""
        return TRIALS.find(self._connection, "id=?", trial_id)

    def trials(
        self,
        where: TrialFilter = TrialFilter(),  # noqa: B008
        order: Order = Order(),  # noqa: B008
        limit: int | None = None,
        after: Cursor | None = None,
    ) -> Page[Trial]:
        """A page of trials."""
        return read_page(self._connection, TRIALS, where.where(), order, TRIAL_ORDERS, limit, after)

    def runs(self, trial_id: int) -> list[Run]:
        """The runs of a trial, oldest first."""
        return RUNS.select(self._connection, "WHERE trial_id=? ORDER BY run_id", trial_id)

    def journal_offset(self, path: str) -> int | None:
        """How far a journal was read; None if it is not known."""
        row = self._connection.execute("SELECT offset FROM journal WHERE path=?", (path,))
        found = row.fetchone()
        return None if found is None else int(found[0])

    def unfinished_runs(self) -> list[Run]:
        """The runs of all trials whose end is not recorded."""
        return RUNS.select(self._connection, "WHERE ended IS NULL ORDER BY trial_id, run_id")

    def has_kept_runs(self) -> bool:
        """Whether a run that the supervisor started is not over: somebody must see to its end."""
        query = (
            "SELECT 1 FROM run JOIN trial ON trial.id=run.trial_id "
            "JOIN experiment ON experiment.id=trial.experiment_id "
            "WHERE run.ended IS NULL AND NOT experiment.unmanaged LIMIT 1"
        )
        return self._connection.execute(query).fetchone() is not None

    def count_experiments(self, states: Sequence[str]) -> int:
        """How many experiments are in one of the states."""
        where = Where()
        where.among("state", states)
        sql = f"SELECT count(*) FROM experiment {where}"
        return int(self._connection.execute(sql, where.parameters).fetchone()[0])

    def search_steps(self, experiment_id: int, after: int = 0) -> list[SearchStep]:
        """What the searcher was told and decided, from a number on."""
        where = "WHERE experiment_id=? AND number>? AND actions<>'null' ORDER BY number"
        return SEARCH_STEPS.select(self._connection, where, experiment_id, after)

    def searcher_state(self, experiment_id: int) -> dict[str, Any] | None:
        """The searcher's state after its last event."""
        return read_searcher_state(self._connection, experiment_id)

    # Metrics

    def iter_metrics(
        self, trial_id: int, group: str | None = None, *, archived: bool = False
    ) -> Iterator[Report]:
        """Give back what was reported, by step; with `archived` also what was rolled back.

        Reports are read page by page: a statement that stays open would keep this thread from
        seeing anything newer, such as the answer to a command.
        """
        key = "steps, run_id" if group is not None else "id"
        last: tuple[int, ...] = ()
        while True:
            where = Where()
            where.equal("trial_id", trial_id)
            where.equal("grp", group)
            if not archived:
                where.add("archived=0")
            if last:
                where.add(f"({key}) > ({','.join('?' * len(last))})", *last)
            sql = f"SELECT {_REPORT_COLUMNS} FROM report {where} ORDER BY {key} LIMIT {_PAGE}"
            rows = self._connection.execute(sql, where.parameters).fetchall()
            page = [_report(row) for row in rows]
            yield from page
            if len(page) < _PAGE:
                return
            end = page[-1]
            last = (end.id,) if group is None else (end.steps_completed, end.run_id)

    def reports_since(
        self, trial_ids: Sequence[int], after: int, limit: int = 1000
    ) -> list[Report]:
        """Reports that were read after the one with the id `after`, for live updates."""
        where = Where()
        where.among("trial_id", trial_ids)
        where.add("id>? AND archived=0", after)
        sql = f"SELECT {_REPORT_COLUMNS} FROM report {where} ORDER BY id LIMIT ?"
        return [_report(row) for row in self._connection.execute(sql, [*where.parameters, limit])]

    def last_report_id(self) -> int:
        """The id of the report that was read last."""
        row = self._connection.execute("SELECT coalesce(max(id), 0) FROM report").fetchone()
        return int(row[0])

    def summary_metrics(self, trial_id: int) -> dict[str, dict[str, Summary]]:
        """Summaries by group (`avg_metrics`, `validation_metrics`, other names) and metric."""
        groups: dict[str, dict[str, Summary]] = {}
        for (group, name), summary in read_summaries(self._connection, trial_id).items():
            groups.setdefault(_SUMMARY_KEYS.get(group, group), {})[name] = summary
        return groups

    def metric_names(self, experiment_id: int) -> list[tuple[str, str]]:
        """The groups and names of all metrics that trials of an experiment reported."""
        rows = self._connection.execute(
            "SELECT DISTINCT s.grp, s.name FROM trial t JOIN summary s ON s.trial_id=t.id "
            "WHERE t.experiment_id=? ORDER BY 1, 2",
            (experiment_id,),
        )
        return rows.fetchall()

    def curves(
        self,
        keys: Sequence[CurveKey],
        x: str | tuple[str, str] = "steps",
        low: float | None = None,
        high: float | None = None,
        pixels: int = 2000,
    ) -> list[Curve]:
        """Curves for a chart of `pixels` columns; rolled back points are left out.

        Args:
            keys: which metrics of which trials.
            x: `steps`, `time`, `relative` (seconds since the trial started), or the name of a
                metric of the same group, such as `epochs`, or the group and name of any metric.
            low: only what has at least this x.
            high: only what has at most this x.
            pixels: about how many buckets to return; fewer points than that come exactly.
        """
        from determined.store._curves import read_curve

        return [read_curve(self._connection, key, x, low, high, pixels) for key in keys]

    def samples(self, trial_id: int, group: str, since: float = 0.0) -> list[Samples]:
        """What the profiler reported."""
        where = "WHERE trial_id=? AND grp=? AND time>? ORDER BY time"
        return SAMPLES.select(self._connection, where, trial_id, group, since)

    # Checkpoints

    def checkpoint(self, uuid: str) -> Checkpoint | None:
        """A checkpoint, None if it is unknown."""
        return CHECKPOINTS.find(self._connection, "uuid=?", uuid)

    def checkpoints(
        self,
        where: CheckpointFilter,
        order: Order = Order("report_time"),  # noqa: B008
        limit: int | None = None,
        after: Cursor | None = None,
    ) -> Page[Checkpoint]:
        """A page of checkpoints."""
        return read_page(
            self._connection, CHECKPOINTS, where.where(), order, CHECKPOINT_ORDERS, limit, after
        )

    def rated_checkpoints(
        self, where: CheckpointFilter, metric: str | None = None
    ) -> list[RatedCheckpoint]:
        """Checkpoints with the validation at their step, by report time.

        Args:
            where: which checkpoints.
            metric: whose value rates them; by default the searcher's metric of their experiment.
        """
        condition = where.where()
        sql = (
            f"SELECT r.metrics, r.id, e.searcher_metric, {CHECKPOINTS.columns} FROM checkpoint "
            "LEFT JOIN experiment e ON e.id=checkpoint.experiment_id "
            "LEFT JOIN report r ON r.trial_id=checkpoint.trial_id AND r.grp='validation' "
            "AND r.steps=checkpoint.steps_completed AND r.archived=0 "
            f"{condition} ORDER BY checkpoint.report_time, checkpoint.uuid"
        )
        rated = []
        for text, report_id, default, *row in self._connection.execute(sql, condition.parameters):
            metrics = None if text is None else json.loads(text)
            value: Any = None if metrics is None else metrics.get(metric or default)
            number = None if type_of(value) != "number" else float(value)
            checkpoint = CHECKPOINTS.record(tuple(row))
            rated.append(RatedCheckpoint(checkpoint, metrics, number, report_id))
        return rated

    def garbage(self, experiment_id: int, policy: Retention) -> list[RatedCheckpoint]:
        """The checkpoints of an experiment that its policy and nothing else keeps from going.

        Never among them: registered ones, warm starts, and those that a trial would resume from.
        """
        experiment = self.experiment(experiment_id)
        if experiment is None:
            raise StoreError(f"There is no experiment {experiment_id}.")
        rated = self.rated_checkpoints(CheckpointFilter(experiment_id, states=["COMPLETED"]))
        candidates = [
            Candidate(
                r.checkpoint.uuid,
                r.checkpoint.trial_id,
                r.checkpoint.steps_completed,
                r.value,
                r.validated or 0,
                saved,
            )
            for saved, r in enumerate(rated)
        ]
        stays = kept(candidates, policy, experiment.smaller_is_better)
        stays |= self._protected(experiment_id)
        return [r for r in rated if r.checkpoint.uuid not in stays]

    def _protected(self, experiment_id: int) -> frozenset[str]:
        terminal = ",".join("?" * len(TERMINAL_STATES))
        rows = self._connection.execute(
            "SELECT v.checkpoint_uuid FROM model_version v UNION "
            "SELECT t.warm_start_checkpoint FROM trial t WHERE t.warm_start_checkpoint IS NOT NULL "
            "UNION SELECT (SELECT c.uuid FROM checkpoint c WHERE c.trial_id=t.id "
            "AND c.state='COMPLETED' ORDER BY c.steps_completed DESC, c.report_time DESC LIMIT 1) "
            f"FROM trial t WHERE t.experiment_id=? AND t.state NOT IN ({terminal})",
            (experiment_id, *TERMINAL_STATES),
        )
        return frozenset(uuid for (uuid,) in rows if uuid is not None)

    def deletion(self, uuid: str) -> Deletion | None:
        """What of a checkpoint is still to be deleted, None if nothing is."""
        return DELETIONS.find(self._connection, "uuid=?", uuid)

    def is_deleting(self, experiment_id: int) -> bool:
        """Whether files of an experiment's checkpoints are still to be deleted."""
        query = (
            "SELECT 1 FROM deletion d JOIN checkpoint c ON c.uuid=d.uuid "
            "WHERE c.experiment_id=? AND d.failure='' LIMIT 1"
        )
        return self._connection.execute(query, (experiment_id,)).fetchone() is not None

    def tasks_using(self, what: str, identifier: str) -> list[int]:
        """The trials that said they use a `checkpoint` or `model_version`."""
        rows = self._connection.execute(
            "SELECT trial_id FROM task_using WHERE what=? AND identifier=? ORDER BY trial_id",
            (what, identifier),
        )
        return [trial_id for (trial_id,) in rows]

    # Commands, events, named things

    def command(self, uuid: str) -> Command | None:
        """A command and, once there is one, its answer."""
        return COMMANDS.find(self._connection, "uuid=?", uuid)

    def has_chores(self) -> bool:
        """Whether an experiment that is over has something left for the supervisor to do."""
        query = (
            "SELECT 1 FROM experiment WHERE gc_is_due "
            "OR json_extract(environment, '$.calls') IS NOT NULL "
            "UNION ALL SELECT 1 FROM deletion WHERE failure='' LIMIT 1"
        )
        return self._connection.execute(query).fetchone() is not None

    def has_unanswered(self) -> bool:
        """Whether a command waits for the supervisor."""
        return COMMANDS.find(self._connection, "answered IS NULL") is not None

    def events(
        self,
        *,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[Event]:
        """What happened, oldest first, from an id on."""
        where = Where()
        where.equal("experiment_id", experiment_id)
        where.equal("trial_id", trial_id)
        where.add("id>?", after)
        rest = f"{where} ORDER BY id LIMIT ?"
        return EVENTS.select(self._connection, rest, *where.parameters, limit)

    def workspaces(self) -> list[Workspace]:
        """All workspaces."""
        return WORKSPACES.select(self._connection, "ORDER BY id")

    def projects(self, workspace_id: int | None = None) -> list[Project]:
        """All projects, or those of a workspace."""
        where = Where()
        where.equal("workspace_id", workspace_id)
        return PROJECTS.select(self._connection, f"{where} ORDER BY id", *where.parameters)

    def experiments_per_project(self) -> dict[int, tuple[int, int]]:
        """How many experiments each project has, and how many of them are not over."""
        over = ",".join("?" * len(OVER_STATES))
        sql = (
            f"SELECT project_id, count(*), sum(state NOT IN ({over})) FROM experiment "
            "GROUP BY project_id"
        )
        rows = self._connection.execute(sql, OVER_STATES)
        return {project_id: (total, active) for project_id, total, active in rows}

    def models(self) -> list[Model]:
        """All registered models."""
        return MODELS.select(self._connection, "ORDER BY id")

    def model(self, name: str) -> Model | None:
        """A model by name."""
        return MODELS.find(self._connection, "name=?", name)

    def model_versions(self, model_id: int) -> list[ModelVersion]:
        """The versions of a model, newest first."""
        rest = "WHERE model_id=? ORDER BY number DESC"
        return MODEL_VERSIONS.select(self._connection, rest, model_id)

    def versions_of_checkpoint(self, uuid: str) -> list[ModelVersion]:
        """The model versions that a checkpoint is registered as."""
        return MODEL_VERSIONS.select(self._connection, "WHERE checkpoint_uuid=?", uuid)


def _report(row: tuple[Any, ...]) -> Report:
    report_id, trial_id, run_id, group, steps, time, metrics, batches, archived = row
    columns = None if batches is None else BatchColumns.from_bytes(batches).to_dicts()
    values = json.loads(metrics)
    return Report(report_id, trial_id, run_id, group, steps, time, values, columns, bool(archived))
