"""Lists for tables: sorted by any column, with a total and numbered pages.

The hyperparameters and metrics of an experiment are those of its best trial. Values beyond a row's
own columns are read only for the rows of the page.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from determined.store._forks import spans
from determined.store._records import (
    CHECKPOINTS,
    EVENTS,
    TRIALS,
    Checkpoint,
    Event,
    Trial,
)
from determined.store._rows import Table
from determined.store.read.connections import Queries
from determined.store.read.pages import (
    CheckpointFilter,
    Where,
)
from determined.store.read.table_filters import (
    ALL_TRIALS_GROUPS,
    ALL_TRIALS_ORDERS,
    EXPERIMENT_GROUPS,
    EXPERIMENT_TABLE_ORDERS,
    QUEUED,
    RUNNING,
    RUNNING_EXPERIMENTS,
    RUNNING_TRIALS,
    TRIAL_STATE,
    TRIAL_TABLE_ORDERS,
    Slice,
    TableFilter,
    TrialTableFilter,
    among_states,
    sort_key,
)
from determined.store.series.summary import Summary, type_of
from determined.store.write.trial_tally import read_summaries


@dataclass(frozen=True)
class ExperimentRow:
    """An experiment without its configuration: a table shows only the searcher's name."""

    id: int
    project_id: int
    owner: str
    name: str
    description: str
    labels: list[str]
    state: str
    reason: str
    progress: float
    archived: bool
    unmanaged: bool
    searcher_metric: str | None
    smaller_is_better: bool
    created: float
    started: float | None
    ended: float | None
    num_trials: int
    checkpoint_count: int
    checkpoint_size: int
    best_validation: float | None
    best_trial_id: int | None


_ROWS = Table("experiment", ExperimentRow)


@dataclass(frozen=True)
class TrialPoint:
    """What a chart of a search needs to know about a trial."""

    id: int
    state: str
    best_validation: float | None
    total_batches: int
    hparams: dict[str, Any]


class RunSpan(NamedTuple):
    """A run, its folder, and its start and end; the end is None while it is running."""

    trial_id: int
    run_id: int
    folder: str
    created: float
    ended: float | None


class Tables(Queries):
    """The lists of a store."""

    def experiments(
        self, wanted: TableFilter, shown: Slice
    ) -> tuple[int, list[tuple[ExperimentRow, str | None]]]:
        """The total, and a page of experiments with the names of their searchers."""
        where = wanted.where()
        (total,) = self._connection.execute(
            f"SELECT count(*) FROM experiment {where}", where.parameters
        ).fetchone()
        key, parameters = sort_key(shown.sort, EXPERIMENT_TABLE_ORDERS, "experiment.best_trial_id")
        group = EXPERIMENT_GROUPS.get(shown.sort, "NULL")
        rows = self._connection.execute(
            "SELECT CASE WHEN json_valid(experiment.config) THEN "
            "json_extract(experiment.config, '$.searcher.name') END, "
            f"{_ROWS.columns} FROM experiment {where} "
            f"ORDER BY {group}, {key} {shown.direction} NULLS LAST, "
            f"experiment.id {shown.direction} LIMIT ? OFFSET ?",
            [*where.parameters, *parameters, shown.limit, shown.offset],
        )
        return total, [(_ROWS.record(row[1:]), row[0]) for row in rows]

    def trials(
        self, experiment_id: int, states: Sequence[str] | None, shown: Slice
    ) -> tuple[int, list[Trial]]:
        """The number of trials of an experiment, and a page of them."""
        where = Where()
        where.equal("trial.experiment_id", experiment_id)
        if states is not None:
            among_states(where, "trial", RUNNING_TRIALS, states)
        (total,) = self._connection.execute(
            f"SELECT count(*) FROM trial {where}", where.parameters
        ).fetchone()
        key, parameters = sort_key(shown.sort, TRIAL_TABLE_ORDERS, "trial.id")
        # The page is found by keys alone; a row, with all its JSON, is read only if it is shown.
        order = f"ORDER BY place {shown.direction} NULLS LAST, number {shown.direction}"
        page = f"SELECT trial.id AS number, {key} AS place FROM trial {where} {order}"
        rows = self._connection.execute(
            f"SELECT {TRIALS.columns} FROM ({page} LIMIT ? OFFSET ?) "
            f"JOIN trial ON trial.id=number {order}",
            [*parameters, *where.parameters, shown.limit, shown.offset],
        )
        return total, [TRIALS.record(row) for row in rows]

    def all_trials(self, wanted: TrialTableFilter, shown: Slice) -> tuple[int, list[Trial]]:
        """The number of matching trials of any experiments, and a page of them."""
        where = wanted.where()
        source = "trial JOIN experiment ON experiment.id=trial.experiment_id"
        (total,) = self._connection.execute(
            f"SELECT count(*) FROM {source} {where}", where.parameters
        ).fetchone()
        key, parameters = sort_key(shown.sort, ALL_TRIALS_ORDERS, "trial.id")
        group = ALL_TRIALS_GROUPS.get(shown.sort, "NULL")
        rows = self._connection.execute(
            f"SELECT {TRIALS.columns} FROM {source} {where} ORDER BY {group}, "
            f"{key} {shown.direction} NULLS LAST, trial.id {shown.direction} LIMIT ? OFFSET ?",
            [*where.parameters, *parameters, shown.limit, shown.offset],
        )
        return total, [TRIALS.record(row) for row in rows]

    def all_hparams(self, wanted: TrialTableFilter, limit: int) -> list[dict[str, Any]]:
        """The hyperparameters of matching trials, the newest first."""
        where = wanted.where()
        rows = self._connection.execute(
            "SELECT trial.hparams FROM trial JOIN experiment ON experiment.id=trial.experiment_id "
            f"{where} ORDER BY trial.id DESC LIMIT ?",
            [*where.parameters, limit],
        )
        return _parsed(text for (text,) in rows)

    def last_metrics(
        self, trial_ids: Sequence[int], names: Iterable[tuple[str, str]]
    ) -> dict[int, dict[tuple[str, str], Any]]:
        """The last values of some metrics of some trials."""
        found: dict[int, dict[tuple[str, str], Any]] = {}
        for group, name in names:
            for trial_id in trial_ids:
                row = self._connection.execute(
                    "SELECT last FROM summary WHERE trial_id=? AND grp=? AND name=?",
                    (trial_id, group, name),
                ).fetchone()
                if row is not None:
                    found.setdefault(trial_id, {})[group, name] = json.loads(row[0])
        return found

    def hparams_of(self, trial_ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        """The hyperparameters of some trials."""
        where = Where()
        where.among("id", trial_ids)
        rows = self._connection.execute(f"SELECT id, hparams FROM trial {where}", where.parameters)
        return {trial_id: json.loads(text) for trial_id, text in rows}

    def best_hparams(self, wanted: TableFilter) -> list[dict[str, Any]]:
        """The hyperparameters of the best trials of all matching experiments."""
        where = wanted.where()
        rows = self._connection.execute(
            "SELECT b.hparams FROM experiment JOIN trial b ON b.id=experiment.best_trial_id "
            f"{where}",
            where.parameters,
        )
        return _parsed(text for (text,) in rows)

    def best_metrics(self, wanted: TableFilter) -> list[tuple[str, str, bool]]:
        """The metrics of those best trials, and whether their last values differ."""
        where = wanted.where()
        rows = self._connection.execute(
            "SELECT s.grp, s.name, min(s.last)<>max(s.last) FROM experiment "
            f"JOIN summary s ON s.trial_id=experiment.best_trial_id {where} GROUP BY 1, 2",
            where.parameters,
        )
        return [(group, name, bool(differs)) for group, name, differs in rows]

    def trial_states(self, experiment_ids: Sequence[int]) -> dict[int, dict[str, int]]:
        """The number of trials in each displayed state, by experiment."""
        where = Where()
        where.among("experiment_id", experiment_ids)
        rows = self._connection.execute(
            f"SELECT experiment_id, {TRIAL_STATE}, count(*), total(state='ACTIVE' AND id IN "
            f"({RUNNING_TRIALS})) FROM trial {where} GROUP BY 1, 2",
            where.parameters,
        )
        found: dict[int, dict[str, int]] = {}
        for experiment_id, state, count, running in rows:
            states = found.setdefault(experiment_id, {})
            if state != "ACTIVE":
                states[state] = count
                continue
            for name, number in ((RUNNING, int(running)), (QUEUED, count - int(running))):
                if number:
                    states[name] = number
        return found

    def experiment_counts(self) -> dict[str, int]:
        """The number of experiments in each displayed state, without archived ones."""
        rows = self._connection.execute(
            "SELECT state, count(*), total(state='ACTIVE' AND id IN "
            f"({RUNNING_EXPERIMENTS})) FROM experiment WHERE archived=0 GROUP BY 1"
        )
        found: dict[str, int] = {}
        for state, count, running in rows:
            if state != "ACTIVE":
                found[state] = count
            else:
                found |= {RUNNING: int(running), QUEUED: count - int(running)}
        return found

    def trial_points(self, experiment_id: int, limit: int) -> list[TrialPoint]:
        """All trials of a search, in the order of their ids."""
        rows = self._connection.execute(
            f"SELECT id, {TRIAL_STATE}, best_validation, total_batches, hparams FROM trial "
            "WHERE experiment_id=? ORDER BY id LIMIT ?",
            (experiment_id, limit),
        ).fetchall()
        hparams = _parsed(row[4] for row in rows)
        return [
            TrialPoint(trial_id, state, best, steps, values)
            for (trial_id, state, best, steps, _), values in zip(rows, hparams, strict=True)
        ]

    def decisions_about(self, experiment_id: int, request_id: str) -> list[tuple[float, str]]:
        """The decisions of a search about a trial: when, and why."""
        rows = self._connection.execute(
            "SELECT time, actions FROM search_step WHERE experiment_id=? AND instr(actions, ?) "
            "ORDER BY number",
            (experiment_id, json.dumps(request_id)),
        )
        found = []
        for time, text in rows:
            mine = [a for a in json.loads(text) or [] if a.get("request_id") == request_id]
            reasons = [str(action["reason"]) for action in mine if action.get("reason")]
            if reasons:
                found.append((time, " ".join(reasons)))
        return found

    def batch_metrics(self, trial_id: int) -> set[tuple[str, str]]:
        """The groups and names of a trial's per-batch metrics; of a fork, with its parent's."""
        return self._series_names(trial_id, per_batch=True)

    def shared_metrics(self, trial_id: int) -> set[tuple[str, str]]:
        """The groups and names of metrics that a trial and its ancestors have curves of."""
        return self._series_names(trial_id, per_batch=False)

    def _series_names(self, trial_id: int, *, per_batch: bool) -> set[tuple[str, str]]:
        where = Where()
        where.among("trial_id", [span.trial_id for span in spans(self._connection, trial_id)])
        where.equal("per_batch", per_batch)
        rows = self._connection.execute(
            f"SELECT DISTINCT grp, name FROM series {where}", where.parameters
        )
        return set(rows.fetchall())

    def batch_metrics_of_experiment(self, experiment_id: int) -> set[tuple[str, str]]:
        """The same for all trials of an experiment."""
        rows = self._connection.execute(
            "SELECT DISTINCT s.grp, s.name FROM trial t JOIN series s ON s.trial_id=t.id "
            "WHERE t.experiment_id=? AND s.per_batch=1",
            (experiment_id,),
        )
        return set(rows.fetchall())

    def summaries(self, trial_id: int) -> dict[tuple[str, str], Summary]:
        """The summaries of a trial's metrics, by group and name."""
        return dict(sorted(read_summaries(self._connection, trial_id).items()))

    def slot_seconds(self, experiment_id: int, now: float) -> float:
        """The slot time that an experiment used, in seconds."""
        query = (
            "SELECT total((coalesce(run.ended, ?) - run.created) * json_array_length(run.slots)) "
            "FROM trial JOIN run ON run.trial_id=trial.id WHERE trial.experiment_id=?"
        )
        return float(self._connection.execute(query, (now, experiment_id)).fetchone()[0])

    def last_events(self, experiment_id: int, limit: int) -> list[Event]:
        """The events of an experiment that are worth a look, newest first."""
        rest = "WHERE experiment_id=? AND level<>'debug' ORDER BY id DESC LIMIT ?"
        return EVENTS.select(self._connection, rest, experiment_id, limit)

    def trial_ids(self, experiment_id: int) -> dict[str, int]:
        """The ids of a search's trials, by request id."""
        rows = self._connection.execute(
            "SELECT request_id, id FROM trial WHERE experiment_id=?", (experiment_id,)
        )
        return dict(rows.fetchall())

    def trial_reasons(self, experiment_id: int) -> dict[str, str]:
        """The last reason given for each trial of a search, by request id."""
        rows = self._connection.execute(
            "SELECT request_id, reason FROM trial WHERE experiment_id=? AND reason<>''",
            (experiment_id,),
        )
        return dict(rows.fetchall())

    def last_decisions(
        self, experiment_id: int, limit: int
    ) -> list[tuple[int, float, dict[str, Any]]]:
        """The actions of a search's last steps that have a reason, newest first."""
        rows = self._connection.execute(
            "SELECT number, time, actions FROM search_step "
            "WHERE experiment_id=? AND sentence<>'' ORDER BY number DESC LIMIT ?",
            (experiment_id, limit),
        )
        return [
            (number, time, action)
            for number, time, text in rows
            for action in reversed(json.loads(text) or [])
            if action.get("reason")
        ]

    def last_values(self, experiment_id: int, group: str, name: str) -> dict[int, Any]:
        """The last value of a metric for each trial that has it."""
        rows = self._connection.execute(
            "SELECT t.id, s.last FROM trial t JOIN summary s ON s.trial_id=t.id "
            "AND s.grp=? AND s.name=? WHERE t.experiment_id=?",
            (group, name, experiment_id),
        )
        return {trial_id: json.loads(text) for trial_id, text in rows}

    def checkpoints(
        self, wanted: CheckpointFilter, limit: int, offset: int
    ) -> tuple[int, list[tuple[Checkpoint, float | None]]]:
        """The number of matching checkpoints, and a page, newest first, with searcher metrics."""
        where = wanted.where()
        (total,) = self._connection.execute(
            f"SELECT count(*) FROM checkpoint {where}", where.parameters
        ).fetchone()
        rows = self._connection.execute(
            f"SELECT {CHECKPOINTS.columns} FROM checkpoint {where} "
            "ORDER BY report_time DESC, uuid DESC LIMIT ? OFFSET ?",
            [*where.parameters, limit, offset],
        ).fetchall()
        found = [CHECKPOINTS.record(row) for row in rows]
        return total, [(checkpoint, self._rating(checkpoint)) for checkpoint in found]

    def _rating(self, checkpoint: Checkpoint) -> float | None:
        row = self._connection.execute(
            "SELECT r.metrics, e.searcher_metric FROM report r, experiment e WHERE e.id=? "
            "AND r.trial_id=? AND r.grp='validation' AND r.steps=? AND r.archived=0",
            (checkpoint.experiment_id, checkpoint.trial_id, checkpoint.steps_completed),
        ).fetchone()
        value: Any = None if row is None else json.loads(row[0]).get(row[1])
        return float(value) if type_of(value) == "number" else None

    def run_spans(self, experiment_id: int) -> list[RunSpan]:
        """When and where the trials of an experiment ran."""
        rows = self._connection.execute(
            "SELECT run.trial_id, run.run_id, run.folder, run.created, run.ended FROM trial "
            "JOIN run ON run.trial_id=trial.id WHERE trial.experiment_id=?",
            (experiment_id,),
        )
        return list(itertools.starmap(RunSpan, rows))


def _parsed(texts: Iterable[str]) -> list[dict[str, Any]]:
    parsed: list[dict[str, Any]] = json.loads(f"[{','.join(texts)}]")  # all at once: a third faster
    return parsed
