"""What changed since the last check, for open pages; the cost is proportional to what is new.

Reports, events and commands are numbered, so new ones are found by number. Everything else that
can change belongs to unfinished experiments and trials: those are few, and are compared.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from determined.journal import BatchColumns
from determined.store.read.pages import Where
from determined.store.series.curves import CurveKey
from determined.store.series.summary import type_of

_UNFINISHED = (
    *("ACTIVE", "PAUSED", "STOPPING_COMPLETED", "STOPPING_CANCELED", "STOPPING_KILLED"),
    *("STOPPING_ERROR", "DELETING"),
)


@dataclass(frozen=True)
class Position:
    """How far a reader has got: the last report, event and command."""

    report: int = 0
    event: int = 0
    command: int = 0


@dataclass
class Changed:
    """The ids of what changed."""

    experiments: set[int] = field(default_factory=set)
    trials: set[int] = field(default_factory=set)
    is_another_store: bool = False
    """Whether the store was recreated: positions in the old one mean nothing."""

    def __bool__(self) -> bool:
        return bool(self.experiments or self.trials)

    def add(self, other: Changed) -> None:
        self.experiments |= other.experiments
        self.trials |= other.trials


class ChangeWatch:
    """Compares the store with its state at the last look. Not thread-safe."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection = self._seen = connect()
        self.position = self._end()
        self._experiments = self._unfinished("experiment")
        self._trials = self._unfinished("trial")
        self._version = self._data_version()

    def look(self) -> Changed:
        """What changed since the last look."""
        self._connection = self._connect()
        is_another_store = self._connection is not self._seen
        version = self._data_version()
        if version == self._version and not is_another_store:
            return Changed()
        self._connection.execute("BEGIN")
        try:
            found = since(self._connection, Position() if is_another_store else self.position)
            found.is_another_store = is_another_store
            position = self._end()
            experiments, trials = self._unfinished("experiment"), self._unfinished("trial")
        finally:
            self._connection.execute("ROLLBACK")
        found.experiments |= _different(self._experiments, experiments)
        for trial_id in _different(self._trials, trials):
            found.trials.add(trial_id)
            row = trials.get(trial_id) or self._trials[trial_id]
            found.experiments.add(row[0])
        # Only now: a look that failed is repeated in full by the next one.
        self._experiments, self._trials, self.position = experiments, trials, position
        self._version, self._seen = version, self._connection
        return found

    def _data_version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _end(self) -> Position:
        """The last number of each; a command counts when it and all before it are answered."""
        row = self._connection.execute(
            "SELECT (SELECT coalesce(max(id), 0) FROM report), "
            "(SELECT coalesce(max(id), 0) FROM event), coalesce("
            "(SELECT min(number) - 1 FROM command WHERE answered IS NULL), "
            "(SELECT max(number) FROM command), 0)"
        ).fetchone()
        return Position(*row)

    def _unfinished(self, table: str) -> dict[int, tuple[Any, ...]]:
        common = "state, reason, progress, checkpoint_count, best_validation"
        columns = {
            "experiment": f"id, id, {common}, num_trials, name, archived, notes, labels",
            "trial": f"id, experiment_id, {common}, run_id, restarts, total_batches, is_held",
        }[table]
        states = ",".join("?" * len(_UNFINISHED))
        rows = self._connection.execute(
            f"SELECT {columns} FROM {table} WHERE state IN ({states})", _UNFINISHED
        )
        return {row[0]: row[1:] for row in rows}


def _different(old: dict[int, tuple[Any, ...]], new: dict[int, tuple[Any, ...]]) -> set[int]:
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def since(connection: sqlite3.Connection, position: Position) -> Changed:
    """The experiments and trials of all reports, events and commands after a position."""
    found = Changed()
    for (trial_id,) in connection.execute(
        "SELECT DISTINCT trial_id FROM report WHERE id>?", (position.report,)
    ):
        found.trials.add(trial_id)
    for experiment_id, trial_id in connection.execute(
        "SELECT DISTINCT experiment_id, trial_id FROM event WHERE id>?", (position.event,)
    ):
        found.experiments.add(experiment_id)
        found.trials.add(trial_id)
    for arguments, answer in connection.execute(
        "SELECT arguments, answer FROM command WHERE number>? AND answered IS NOT NULL",
        (position.command,),
    ):
        for content in (json.loads(arguments), json.loads(answer or "{}")):
            found.experiments.add(content.get("experiment_id"))
            found.trials.add(content.get("trial_id"))
    for ids in (found.experiments, found.trials):
        ids.discard(None)  # an event may be about neither
    for trial_id in found.trials:
        row = connection.execute(
            "SELECT experiment_id FROM trial WHERE id=?", (trial_id,)
        ).fetchone()
        if row is not None:
            found.experiments.add(row[0])
    return found


@dataclass
class NewPoints:
    """New points of one curve, in the order in which they were read."""

    steps: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def new_points(
    connection: sqlite3.Connection, keys: Sequence[CurveKey], after: int, limit: int
) -> tuple[dict[CurveKey, NewPoints], int]:
    """The new points of curves after a report, and the last report that they include."""
    where = Where()
    where.among("trial_id", sorted({key.trial_id for key in keys}))
    where.add("id>? AND archived=0", after)
    rows = connection.execute(
        f"SELECT id, trial_id, grp, steps, time, metrics, batches FROM report {where} "
        "ORDER BY id LIMIT ?",
        [*where.parameters, limit],
    )
    wanted: dict[tuple[int, str], list[CurveKey]] = {}
    for key in keys:
        wanted.setdefault((key.trial_id, key.group), []).append(key)
    found: dict[CurveKey, NewPoints] = {}
    last = after
    for number, trial_id, group, steps, time, metrics, batches in rows:
        last = number
        for key in wanted.get((trial_id, group), ()):
            points = found.setdefault(key, NewPoints())
            if not key.per_batch:
                _add_report(points, steps, time, json.loads(metrics).get(key.name))
            elif batches is not None:
                _add_batches(points, steps, time, BatchColumns.from_bytes(batches), key.name)
    return {key: points for key, points in found.items() if points.steps}, last


def _add_report(points: NewPoints, steps: int, time: float, value: Any) -> None:
    if type_of(value) == "number":
        points.steps.append(steps)
        points.times.append(time)
        points.values.append(float(value))


def _add_batches(
    points: NewPoints, steps: int, time: float, batches: BatchColumns, name: str
) -> None:
    column = batches.columns.get(name)
    if column is None or not column.is_numeric:
        return
    first = steps - batches.count + 1
    rows = range(batches.count) if column.rows is None else column.rows
    points.steps += [first + row for row in rows]
    points.times += [time] * len(rows)
    points.values += [float(value) for value in column.values]
