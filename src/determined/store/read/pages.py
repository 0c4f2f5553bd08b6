"""Lists with filters, an order, and pages that stay stable while rows are added."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from determined.store._rows import Table

T = TypeVar("T")

Cursor = tuple[Any, Any]  # the sort key of the last row of a page, and its id

EXPERIMENT_ORDERS = {
    "id": "experiment.id",
    "name": "experiment.name",
    "description": "experiment.description",
    "state": "experiment.state",
    "progress": "experiment.progress",
    "owner": "experiment.owner",
    "parent_id": "experiment.parent_id",
    "project_id": "experiment.project_id",
    "started": "experiment.started",
    "ended": "experiment.ended",
    "num_trials": "experiment.num_trials",
    "checkpoint_size": "experiment.checkpoint_size",
    "checkpoint_count": "experiment.checkpoint_count",
    "best_validation": "experiment.best_validation",
}
TRIAL_ORDERS = {
    "id": "trial.id",
    "state": "trial.state",
    "started": "trial.started",
    "ended": "trial.ended",
    "duration": "coalesce(trial.ended, unixepoch()) - trial.started",
    "best_validation": "trial.best_validation",
    "latest_validation": "trial.latest_validation",
    "total_batches": "trial.total_batches",
    "restarts": "trial.restarts",
    "checkpoint_size": "trial.checkpoint_size",
}
CHECKPOINT_ORDERS = {
    "uuid": "checkpoint.uuid",
    "trial_id": "checkpoint.trial_id",
    "steps_completed": "checkpoint.steps_completed",
    "report_time": "checkpoint.report_time",
    "state": "checkpoint.state",
    "size": "checkpoint.size",
}


@dataclass(frozen=True)
class Order:
    """The column to sort by; rows without a value come last in either direction."""

    by: str = "id"
    descending: bool = False


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some rows of a list, and the cursor for the next page (None at the end)."""

    rows: list[T]
    next: Cursor | None


@dataclass(frozen=True)
class ExperimentFilter:
    """Which experiments to list; criteria that are not set are ignored."""

    ids: Sequence[int] | None = None
    states: Sequence[str] | None = None
    archived: bool | None = None
    owner: str | None = None
    project_id: int | None = None
    workspace_id: int | None = None
    labels: Sequence[str] = ()
    name_contains: str | None = None

    def where(self) -> Where:
        """The condition in SQL."""
        where = Where()
        where.among("experiment.id", self.ids)
        where.among("experiment.state", self.states)
        where.equal("experiment.archived", self.archived)
        where.equal("experiment.owner", self.owner)
        where.equal("experiment.project_id", self.project_id)
        if self.workspace_id is not None:
            among = "experiment.project_id IN (SELECT id FROM project WHERE workspace_id=?)"
            where.add(among, self.workspace_id)
        for label in self.labels:
            where.add("EXISTS (SELECT 1 FROM json_each(experiment.labels) WHERE value=?)", label)
        if self.name_contains:
            where.add("instr(lower(experiment.name), lower(?))", self.name_contains)
        return where


@dataclass(frozen=True)
class TrialFilter:
    """Which trials to list; criteria that are not set are ignored."""

    ids: Sequence[int] | None = None
    experiment_id: int | None = None
    states: Sequence[str] | None = None

    def where(self) -> Where:
        """The condition in SQL."""
        where = Where()
        where.among("trial.id", self.ids)
        where.equal("trial.experiment_id", self.experiment_id)
        where.among("trial.state", self.states)
        return where


@dataclass(frozen=True)
class CheckpointFilter:
    """Which checkpoints to list; criteria that are not set are ignored."""

    experiment_id: int | None = None
    trial_id: int | None = None
    states: Sequence[str] | None = None

    def where(self) -> Where:
        """The condition in SQL."""
        where = Where()
        where.equal("checkpoint.experiment_id", self.experiment_id)
        where.equal("checkpoint.trial_id", self.trial_id)
        where.among("checkpoint.state", self.states)
        return where


class Where:
    """Conditions joined with AND, and their parameters."""

    def __init__(self) -> None:
        self._conditions: list[str] = []
        self.parameters: list[Any] = []

    def add(self, condition: str, *parameters: Any) -> None:
        """Add a condition with its parameters."""
        self._conditions.append(f"({condition})")
        self.parameters += parameters

    def equal(self, column: str, value: Any) -> None:
        """Add `column = value` unless the value is None."""
        if value is not None:
            self.add(f"{column}=?", value)

    def among(self, column: str, values: Sequence[Any] | None) -> None:
        """Add `column IN values` unless they are None."""
        if values is not None:
            self.add(f"{column} IN ({','.join('?' * len(values))})", *values)

    def __str__(self) -> str:
        return f"WHERE {' AND '.join(self._conditions)}" if self._conditions else ""


def read_page(
    connection: sqlite3.Connection,
    table: Table[T],
    where: Where,
    order: Order,
    orders: Mapping[str, str],
    limit: int | None,
    after: Cursor | None,
) -> Page[T]:
    """Read one page; the cursor is the key of the last row, not a number of rows to skip."""
    if order.by not in orders:
        raise ValueError(f"Sort by one of {', '.join(orders)}, got {order.by!r}.")
    key = orders[order.by]
    identity = f"{table.name}.{'uuid' if 'uuid' in table.fields else 'id'}"
    if after is not None:
        _go_on(where, key, identity, order, after)
    direction = "DESC" if order.descending else "ASC"
    sql = (
        f"SELECT {key}, {identity}, {table.columns} FROM {table.name} {where} "
        f"ORDER BY {key} {direction} NULLS LAST, {identity} {direction} LIMIT ?"
    )
    count = -1 if limit is None else limit
    rows = connection.execute(sql, [*where.parameters, count]).fetchall()
    is_full = limit is not None and len(rows) == limit and limit > 0
    return Page([table.record(row[2:]) for row in rows], tuple(rows[-1][:2]) if is_full else None)


def _go_on(where: Where, key: str, identity: str, order: Order, after: Cursor) -> None:
    value, last = after
    beyond = "<" if order.descending else ">"
    if key == identity:
        where.add(f"{identity} {beyond} ?", last)
    elif value is None:
        where.add(f"{key} IS NULL AND {identity} {beyond} ?", last)
    else:
        where.add(
            f"{key} {beyond} ? OR ({key} = ? AND {identity} {beyond} ?) OR {key} IS NULL",
            value,
            value,
            last,
        )
