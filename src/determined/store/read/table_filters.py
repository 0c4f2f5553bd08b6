"""The filters and orders of tables, as SQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from determined.store.read.pages import EXPERIMENT_ORDERS, TRIAL_ORDERS, ExperimentFilter, Where

RUNNING, QUEUED, STOPPED = "RUNNING", "QUEUED", "STOPPED"

# Every reason of a trial that trained to its end starts with this word.
_FINISHED = "finished"
STOPPED_EARLY = (
    f"(trial.state='COMPLETED' AND trial.progress<1 AND trial.reason<>'' "
    f"AND trial.reason NOT LIKE '{_FINISHED}%')"
)
TRIAL_STATE = f"iif({STOPPED_EARLY}, '{STOPPED}', trial.state)"


def stopped_early(state: str, progress: float, reason: str) -> bool:
    """Whether a search ended a completed trial before its time."""
    is_short = state == "COMPLETED" and progress < 1
    return is_short and reason != "" and not reason.lower().startswith(_FINISHED)


EXPERIMENT_TABLE_ORDERS = EXPERIMENT_ORDERS | {
    "created": "experiment.created",
    "duration": "coalesce(experiment.ended, unixepoch()) - experiment.started",
    "trials": "experiment.num_trials",
    "best": "experiment.best_validation * iif(experiment.smaller_is_better, -1, 1)",
}
# Values of different metrics do not compare: each metric's rows stay together.
EXPERIMENT_GROUPS = {"best": "experiment.best_validation IS NULL, experiment.searcher_metric"}
TRIAL_TABLE_ORDERS = TRIAL_ORDERS | {
    "created": "trial.created",
    "best": "trial.best_validation",
    "latest": "trial.latest_validation",
    "steps": "trial.total_batches",
    "progress": "trial.progress",
}
ALL_TRIALS_ORDERS = TRIAL_TABLE_ORDERS | {
    "best": "trial.best_validation * iif(experiment.smaller_is_better, -1, 1)",
    "experiment": "experiment.name",
}
ALL_TRIALS_GROUPS = {"best": "trial.best_validation IS NULL, experiment.searcher_metric"}
# The last value, which is stored as JSON, as a number that can be sorted.
_LAST = (
    "CASE WHEN s.type<>'number' OR s.last='NaN' THEN NULL WHEN s.last='Infinity' THEN 9e999 "
    "WHEN s.last='-Infinity' THEN -9e999 ELSE CAST(s.last AS REAL) END"
)


@dataclass(frozen=True)
class TableFilter(ExperimentFilter):
    """Which experiments to show; RUNNING and QUEUED count as states too."""

    search: str | None = None
    unmanaged: bool | None = None
    metric: str | None = None
    metric_min: float | None = None
    metric_max: float | None = None

    def where(self) -> Where:
        """The condition in SQL."""
        where = ExperimentFilter.where(replace(self, states=None))
        where.equal("experiment.unmanaged", self.unmanaged)
        if self.search:
            where.add(
                "instr(lower(experiment.name), lower(?)) OR "
                "instr(lower(experiment.labels), lower(?)) OR "
                "instr(lower(experiment.description), lower(?)) OR experiment.id=?",
                self.search,
                json.dumps(self.search)[1:-1],
                self.search,
                int(self.search) if self.search.isdecimal() and len(self.search) < 16 else -1,
            )
        where.equal("experiment.searcher_metric", self.metric)
        if self.metric_min is not None:
            where.add("experiment.best_validation>=?", self.metric_min)
        if self.metric_max is not None:
            where.add("experiment.best_validation<=?", self.metric_max)
        if self.states is not None:
            among_states(where, "experiment", RUNNING_EXPERIMENTS, self.states)
        return where


@dataclass(frozen=True)
class Condition:
    """What a hyperparameter must be: `lr < 0.01`, `optimizer = adam`."""

    hparam: str
    operator: Literal["<", "<=", "=", ">=", ">"]
    value: float | str

    def add_to(self, where: Where) -> None:
        """Add the condition; values of another type do not fit, whatever the operator."""
        types = "('text')" if isinstance(self.value, str) else "('integer', 'real')"
        given, path = "json_extract(trial.hparams, ?)", hparam_path(self.hparam)
        where.add(
            f"CASE WHEN json_valid(trial.hparams) THEN typeof({given}) IN {types} "
            f"AND {given} {self.operator} ? END",
            *(path, path, self.value),
        )


@dataclass(frozen=True)
class TrialTableFilter:
    """Which trials to show: of which experiments, in which displayed states, with what values."""

    experiments: TableFilter = TableFilter()
    states: Sequence[str] | None = None
    conditions: Sequence[Condition] = ()

    def where(self) -> Where:
        """The condition in SQL."""
        where = self.experiments.where()
        if self.states is not None:
            among_states(where, "trial", RUNNING_TRIALS, self.states)
        for one in self.conditions:
            one.add_to(where)
        return where


RUNNING_TRIALS = "SELECT trial_id FROM run WHERE ended IS NULL"
RUNNING_EXPERIMENTS = f"SELECT experiment_id FROM trial WHERE id IN ({RUNNING_TRIALS})"


def among_states(where: Where, table: str, running: str, states: Sequence[str]) -> None:
    """Add the condition that a row is in one of the displayed states."""
    state = TRIAL_STATE if table == "trial" else f"{table}.state"
    parts = [f"{state} IN ({','.join('?' * len(states))})"]
    if RUNNING in states:
        parts.append(f"({table}.state='ACTIVE' AND {table}.id IN ({running}))")
    if QUEUED in states:
        parts.append(f"({table}.state='ACTIVE' AND {table}.id NOT IN ({running}))")
    where.add(" OR ".join(parts), *states)


@dataclass(frozen=True)
class Slice:
    """Which rows of a list: sorted by a column, `hparam:NAME` or `metric:GROUP.NAME`."""

    sort: str = "id"
    descending: bool = False
    limit: int = 100
    offset: int = 0

    @property
    def direction(self) -> str:
        return "DESC" if self.descending else "ASC"


def sort_key(sort: str, orders: dict[str, str], trial: str) -> tuple[str, list[Any]]:
    """The sort key as SQL: a column, or a value of the trial that the row represents."""
    family, _, name = sort.partition(":")
    if family == "hparam":
        path = hparam_path(name)
        if trial == "trial.id":
            source = "json_valid(trial.hparams) THEN json_extract(trial.hparams, ?)"
            return f"CASE WHEN {source} END", [path]
        source = "CASE WHEN json_valid(b.hparams) THEN json_extract(b.hparams, ?) END"
        return f"(SELECT {source} FROM trial b WHERE b.id={trial})", [path]
    if family == "metric":
        group, _, metric = name.partition(".")
        inner = f"SELECT {_LAST} FROM summary s WHERE s.trial_id={trial} AND s.grp=? AND s.name=?"
        return f"({inner})", [group, metric]
    if sort not in orders:
        raise ValueError(f"Sort by one of {', '.join(orders)}, got {sort!r}.")
    return orders[sort], []


def hparam_path(name: str) -> str:
    """The path of a hyperparameter, with groups separated by dots, for SQLite's JSON."""
    parts = name.replace('"', "").replace("\\", "").split(".")
    return "$" + "".join(f'."{part}"' for part in parts)
