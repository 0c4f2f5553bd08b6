"""Queries of the store, for clients, dashboard and supervisor; they never block the writer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from determined._contracts.retention import Candidate, Retention, kept
from determined._contracts.tensor_hashes import TensorHashes
from determined.errors import StoreError
from determined.store._forks import ForkQueries, bases
from determined.store._identity import Identity, read_identity
from determined.store._records import (
    CHECKPOINTS,
    COMMANDS,
    DELETIONS,
    EVENTS,
    EXPERIMENTS,
    HAS_CALLS,
    RUNS,
    SEARCH_STEPS,
    TERMINAL_STATES,
    TRIALS,
    Checkpoint,
    Command,
    Deletion,
    Event,
    Experiment,
    RatedCheckpoint,
    Run,
    SearchStep,
    Trial,
    is_exact,
)
from determined.store._rows import read_searcher_state
from determined.store.read.changes import Changed, ChangeWatch, Position, since
from determined.store.read.connections import Connections, Queries
from determined.store.read.listing import Tables
from determined.store.read.metrics import MetricQueries
from determined.store.read.pages import (
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
from determined.store.read.registry import RegistryQueries
from determined.store.series.summary import type_of


class Reader(Queries):
    """Reads the store of a home; may be shared by threads, each with its own connection.

    Attributes:
        metrics: what trials reported.
        forks: where trials branched off from others.
        registry: workspaces, projects and models.
        tables: lists with totals, sorting by any column, and numbered pages.
    """

    def __init__(self, home: Path) -> None:
        connections = Connections(home)
        super().__init__(connections)
        self.metrics = MetricQueries(connections)
        self.forks = ForkQueries(connections)
        self.registry = RegistryQueries(connections)
        self.tables = Tables(connections)

    def close(self) -> None:
        """Close the connections of all threads."""
        self._connections.close()

    def snapshot(self) -> AbstractContextManager[None]:
        """All queries of this thread within the `with` block see one state of the store."""
        return self._connections.snapshot()

    def data_version(self) -> int:
        """A number that changes, for this thread, whenever something was committed."""
        return self._connections.data_version()

    def version_probe(self) -> Callable[[], int]:
        """A query like `data_version` that any thread may run, one at a time."""
        return self._connections.version_probe()

    @property
    def identity(self) -> Identity | None:
        """The home that the store belongs to; None until its supervisor has recorded it."""
        return read_identity(self._connection)

    def watch(self) -> ChangeWatch:
        """Something that tells what changes from now on; for this thread."""
        return ChangeWatch(lambda: self._connection)

    def changed_since(self, position: Position) -> Changed:
        """The experiments and trials of all reports, events and commands after a position."""
        return since(self._connection, position)

    def command(self, uuid: str) -> Command | None:
        """A command and, once there is one, its answer."""
        return COMMANDS.find(self._connection, "uuid=?", uuid)

    def has_chores(self) -> bool:
        """Whether a finished experiment has something left for the supervisor to do."""
        query = (
            "SELECT 1 FROM experiment WHERE gc_is_due "
            f"UNION ALL SELECT 1 FROM experiment WHERE {HAS_CALLS} "
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
        """The events from an id on, oldest first."""
        where = Where()
        where.equal("experiment_id", experiment_id)
        where.equal("trial_id", trial_id)
        where.add("id>?", after)
        rest = f"{where} ORDER BY id LIMIT ?"
        return EVENTS.select(self._connection, rest, *where.parameters, limit)

    # Experiments, trials, runs and searches

    def experiment(self, experiment_id: int) -> Experiment | None:
        """An experiment, None if there is no such id."""
        return EXPERIMENTS.find(self._connection, "id=?", experiment_id)

    def imported(self, origin: str) -> Experiment | None:
        """The experiment that was imported from somewhere, None if it is not here."""
        return EXPERIMENTS.find(self._connection, "origin=?", origin)

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

    def environments(self, trial_id: int) -> list[Event]:
        """What each run of a trial computed with, in its details; oldest first."""
        where = "WHERE trial_id=? AND kind='environment' ORDER BY id"
        return EVENTS.select(self._connection, where, trial_id)

    def journal_offset(self, path: str) -> int | None:
        """How far a journal was read; None if it is unknown."""
        row = self._connection.execute("SELECT offset FROM journal WHERE path=?", (path,))
        found = row.fetchone()
        return None if found is None else int(found[0])

    def unfinished_runs(self) -> list[Run]:
        """The runs of all trials that have no recorded end."""
        return RUNS.select(self._connection, "WHERE ended IS NULL ORDER BY trial_id, run_id")

    def has_kept_runs(self) -> bool:
        """Whether a run that the supervisor started is unfinished and must be watched."""
        query = (
            "SELECT 1 FROM run JOIN trial ON trial.id=run.trial_id "
            "JOIN experiment ON experiment.id=trial.experiment_id "
            "WHERE run.ended IS NULL AND NOT experiment.unmanaged LIMIT 1"
        )
        return self._connection.execute(query).fetchone() is not None

    def count_experiments(self, states: Sequence[str]) -> int:
        """The number of experiments in one of the states."""
        where = Where()
        where.among("state", states)
        sql = f"SELECT count(*) FROM experiment {where}"
        return int(self._connection.execute(sql, where.parameters).fetchone()[0])

    def search_steps(self, experiment_id: int, after: int = 0) -> list[SearchStep]:
        """The searcher's events and decisions, from a number on."""
        where = "WHERE experiment_id=? AND number>? AND actions<>'null' ORDER BY number"
        return SEARCH_STEPS.select(self._connection, where, experiment_id, after)

    def searcher_state(self, experiment_id: int) -> dict[str, Any] | None:
        """The searcher's state after its last event."""
        return read_searcher_state(self._connection, experiment_id)

    # Checkpoints and their deletion

    def checkpoint(self, uuid: str) -> Checkpoint | None:
        """A checkpoint, None if it is unknown."""
        return CHECKPOINTS.find(self._connection, "uuid=?", uuid)

    def tensor_hashes(self, uuid: str) -> TensorHashes | None:
        """What a checkpoint held, tensor by tensor, also if its files are gone.

        None if it is unknown, or was saved by an earlier release or by other code.
        """
        query = "SELECT hashes FROM checkpoint WHERE uuid=?"
        row = self._connection.execute(query, (uuid,)).fetchone()
        try:
            return TensorHashes.from_record(row[0]) if row is not None and row[0] else None
        except ValueError:
            return None

    def checkpoints_beginning_with(self, prefix: str, limit: int) -> list[Checkpoint]:
        """Checkpoints whose UUIDs begin so, at most `limit` of them."""
        condition = "WHERE uuid>=? AND uuid<? ORDER BY uuid LIMIT ?"
        return CHECKPOINTS.select(self._connection, condition, prefix, f"{prefix}\U0010ffff", limit)

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
            metric: the metric that rates them; by default their experiment's searcher metric.
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
        """The checkpoints of an experiment that its retention policy does not keep.

        They never include registered ones, warm starts, those that forks start from, and those
        that a trial would resume from.
        """
        experiment = EXPERIMENTS.find(self._connection, "id=?", experiment_id)
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
                not r.checkpoint.metadata.get("not_exact"),
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
            f"AND c.state='COMPLETED' AND {is_exact('c')} "
            "ORDER BY c.steps_completed DESC, c.report_time DESC LIMIT 1) "
            f"FROM trial t WHERE t.experiment_id=? AND t.state NOT IN ({terminal})",
            (experiment_id, *TERMINAL_STATES),
        )
        found = frozenset(uuid for (uuid,) in rows if uuid is not None)
        return found | bases(self._connection).keys()

    def deletion(self, uuid: str) -> Deletion | None:
        """The pending deletion of a checkpoint, None if there is none."""
        return DELETIONS.find(self._connection, "uuid=?", uuid)

    def is_deleting(self, experiment_id: int) -> bool:
        """Whether an experiment has pending deletions of checkpoint files."""
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
