"""Queries on experiments, trials, runs and searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from determined.store._records import (
    EVENTS,
    EXPERIMENTS,
    RUNS,
    SEARCH_STEPS,
    TRIALS,
    Event,
    Experiment,
    Run,
    SearchStep,
    Trial,
)
from determined.store._rows import read_searcher_state
from determined.store.read.connections import Connected
from determined.store.read.pages import (
    EXPERIMENT_ORDERS,
    TRIAL_ORDERS,
    Cursor,
    ExperimentFilter,
    Order,
    Page,
    TrialFilter,
    Where,
    read_page,
)


class ExperimentQuestions(Connected):
    """Queries on experiments, their trials and the searcher."""

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
