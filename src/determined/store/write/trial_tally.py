"""What is derived from a trial's reports: rows, summaries, best and latest validation."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable
from typing import Any

from determined import journal
from determined.store._records import FORKS, TRIALS
from determined.store.series.summary import Summary, better, type_of

VALIDATION = "validation"

_Hidden = tuple[int, str, bool]  # run, group, whether the points are per batch


class TrialTally:
    """Keeps the running totals of one trial, and writes them once per transaction."""

    def __init__(self, connection: sqlite3.Connection, trial_id: int) -> None:
        self._connection = connection
        self.trial_id = trial_id
        row = connection.execute(
            "SELECT t.experiment_id, t.task_id, t.run_id, t.total_batches, t.best_validation, "
            "t.best_validation_steps, t.latest_validation, t.latest_validation_steps, "
            "e.searcher_metric, e.smaller_is_better, e.config "
            "FROM trial t JOIN experiment e ON e.id = t.experiment_id WHERE t.id=?",
            (trial_id,),
        ).fetchone()
        assert row is not None, f"there is no trial {trial_id}"
        fork = FORKS.find(connection, "trial_id=?", trial_id)
        self.fork_at = -1 if fork is None else fork.at
        """The last step of which the rows are the parent's."""
        self.experiment_id, self.task_id, self.run_id, self._total = row[:4]
        self._best = None if row[4] is None else (row[4], row[5])
        self._latest = None if row[7] is None else (row[6], row[7])
        self._metric, self._smaller_is_better = row[8], bool(row[9])
        self.storage = json.loads(row[10]).get("checkpoint_storage") or {}
        self._summaries: dict[tuple[str, str], Summary] | None = None
        self._new_values: dict[tuple[str, str], list[Any]] = {}
        self._columns: dict[str, Any] = {}
        self._older: dict[_Hidden, int] | None = None
        self._older_than = 0
        self._last_steps: dict[str, int] = {}
        self._written: dict[str, Any] = {}

    def knows_validation(self, record: journal.Metrics) -> bool:
        """Whether a validation with the searcher's metric was already reported at this step."""
        if record.group != VALIDATION:
            return False
        rows = self._connection.execute(
            "SELECT metrics FROM report WHERE trial_id=? AND grp=? AND steps=?",
            (self.trial_id, VALIDATION, record.steps_completed),
        ).fetchall()
        return any(self._metric is None or self._metric in json.loads(row[0]) for row in rows)

    def find_report(self, group: str, steps: int) -> tuple[int, str, bytes | None] | None:
        """The visible report at a step: id, metrics, columns of batches."""
        if group not in self._last_steps:
            (last,) = self._connection.execute(
                "SELECT max(steps) FROM report WHERE trial_id=? AND grp=?", (self.trial_id, group)
            ).fetchone()
            self._last_steps[group] = -1 if last is None else last
        if steps > self._last_steps[group]:
            return None
        found: tuple[int, str, bytes | None] | None = self._connection.execute(
            "SELECT id, metrics, batches FROM report "
            "WHERE trial_id=? AND grp=? AND steps=? AND archived=0",
            (self.trial_id, group, steps),
        ).fetchone()
        return found

    def insert_report(self, run_id: int, record: journal.Metrics) -> None:
        """Add a new report."""
        self._connection.execute(
            "INSERT INTO report(trial_id, run_id, grp, steps, time, metrics, batches) "
            "VALUES (?,?,?,?,?,?,?)",
            (
                self.trial_id,
                run_id,
                record.group,
                record.steps_completed,
                record.time,
                json.dumps(record.metrics),
                None if record.batches is None else record.batches.to_bytes(),
            ),
        )
        last = self._last_steps.get(record.group, -1)
        self._last_steps[record.group] = max(last, record.steps_completed)

    def replace_report(
        self, report_id: int, metrics: dict[str, Any], batches: journal.BatchColumns | None
    ) -> None:
        """Rewrite a report, merged with a second one for the same step."""
        self._connection.execute(
            "UPDATE report SET metrics=?, batches=coalesce(?, batches) WHERE id=?",
            (json.dumps(metrics), None if batches is None else batches.to_bytes(), report_id),
        )

    def count(self, group: str, steps: int, metrics: dict[str, Any]) -> None:
        """Add new values to the totals."""
        for name, value in metrics.items():
            self._new_values.setdefault((group, name), []).append(value)
        self._total = max(self._total, steps)
        if group == VALIDATION and self._metric in metrics:
            self._count_validation(steps, metrics[self._metric])

    def set_column(self, name: str, value: Any) -> None:
        """Set a column of the trial with the next flush."""
        self._columns[name] = value

    def roll_back(self, run_id: int, limit: Callable[[str, bool], int]) -> None:
        """Hide reports of runs older than `run_id` beyond the limit of their group."""
        older = self._load_older(run_id)
        hidden = {
            key: limit(key[1], key[2]) for key, last in older.items() if last > limit(*key[1:])
        }
        if not hidden:
            return
        for (old_run, group, per_batch), steps in hidden.items():
            older[old_run, group, per_batch] = steps
            self._hide(old_run, group, per_batch, steps)
        if any(not per_batch for _, _, per_batch in hidden):
            self._recount()

    def flush(self) -> None:
        """Write the totals that changed."""
        if self._new_values:
            self._write_summaries()
        self._write_trial()

    def _count_validation(self, steps: int, value: Any) -> None:
        best = better([(steps, value)], self._smaller_is_better)
        if best is not None:
            known = [] if self._best is None else [(self._best[1], self._best[0])]
            self._best = better([*known, (steps, best[0])], self._smaller_is_better)
        if type_of(value) == "number" and (self._latest is None or steps >= self._latest[1]):
            self._latest = (None if math.isnan(value) else float(value), steps)

    def _load_older(self, run_id: int) -> dict[_Hidden, int]:
        """The last visible step of every older run, by group, of reports and of batches."""
        if self._older is not None and self._older_than == run_id:
            return self._older
        self._older, self._older_than = {}, run_id
        select = "SELECT run_id, grp, max(steps) FROM report WHERE trial_id=? AND run_id<? "
        parameters = (self.trial_id, run_id)
        for old_run, group, last in self._connection.execute(
            select + "AND archived=0 GROUP BY run_id, grp", parameters
        ):
            self._older[old_run, group, False] = last
        for old_run, group, last in self._connection.execute(
            select + "AND batches IS NOT NULL GROUP BY run_id, grp", parameters
        ):
            self._older[old_run, group, True] = last
        for old_run, group, steps in self._connection.execute(
            "SELECT run_id, grp, steps FROM cut WHERE trial_id=? AND per_batch=1", (self.trial_id,)
        ):
            key = (old_run, group, True)
            if key in self._older:
                self._older[key] = min(self._older[key], steps)
        return self._older

    def _hide(self, old_run: int, group: str, per_batch: bool, steps: int) -> None:
        if not per_batch:
            self._connection.execute(
                "UPDATE report SET archived=1 "
                "WHERE trial_id=? AND grp=? AND steps>? AND run_id=? AND archived=0",
                (self.trial_id, group, steps, old_run),
            )
        self._connection.execute(
            "INSERT INTO cut VALUES (?,?,?,?,?) "
            "ON CONFLICT DO UPDATE SET steps=min(steps, excluded.steps)",
            (self.trial_id, old_run, group, per_batch, steps),
        )

    def _recount(self) -> None:
        """Recompute the totals from all visible reports."""
        self._connection.execute("DELETE FROM summary WHERE trial_id=?", (self.trial_id,))
        self._summaries, self._new_values = {}, {}
        self._total, self._best, self._latest = 0, None, None
        rows = self._connection.execute(
            "SELECT grp, steps, metrics FROM report WHERE trial_id=? AND archived=0 ORDER BY id",
            (self.trial_id,),
        )
        for group, steps, metrics in rows:
            self.count(group, steps, json.loads(metrics))

    def _load_summaries(self) -> dict[tuple[str, str], Summary]:
        if self._summaries is None:
            self._summaries = read_summaries(self._connection, self.trial_id)
        return self._summaries

    def _write_summaries(self) -> None:
        summaries = self._load_summaries()
        rows = []
        for key, values in self._new_values.items():
            old = summaries.get(key)
            summary = (
                old.with_values(values) if old else Summary.of(values[0]).with_values(values[1:])
            )
            summaries[key] = summary
            numbers = map(_stored, (summary.sum, summary.min, summary.max))
            last = json.dumps(summary.last)
            rows.append((self.trial_id, *key, summary.type, last, summary.count, *numbers))
        self._connection.executemany(
            "INSERT OR REPLACE INTO summary VALUES (?,?,?,?,?,?,?,?,?)", rows
        )
        self._new_values.clear()

    def _write_trial(self) -> None:
        best, best_steps = self._best or (None, None)
        latest, latest_steps = self._latest or (None, None)
        values = self._columns | {
            "total_batches": self._total,
            "best_validation": best,
            "best_validation_steps": best_steps,
            "latest_validation": latest,
            "latest_validation_steps": latest_steps,
        }
        if values == self._written:
            return
        TRIALS.update(self._connection, "id=?", [self.trial_id], values)
        if self._written.get("best_validation", math.nan) != best:
            update_best(self._connection, self.experiment_id, self._smaller_is_better)
        self._columns = {}
        self._written = values


def update_best(
    connection: sqlite3.Connection, experiment_id: int, smaller_is_better: bool
) -> None:
    """Recompute the best validation of an experiment, using the index."""
    order = "ASC" if smaller_is_better else "DESC"
    best = connection.execute(
        "SELECT best_validation, id FROM trial WHERE experiment_id=? "
        f"AND best_validation IS NOT NULL ORDER BY best_validation {order}, id LIMIT 1",
        (experiment_id,),
    ).fetchone()
    connection.execute(
        "UPDATE experiment SET best_validation=?, best_trial_id=? WHERE id=?",
        (*(best or (None, None)), experiment_id),
    )


def read_summaries(connection: sqlite3.Connection, trial_id: int) -> dict[tuple[str, str], Summary]:
    """The summaries of a trial, by group and name of the metric."""
    rows = connection.execute(
        "SELECT grp, name, type, last, count, sum, min, max FROM summary WHERE trial_id=?",
        (trial_id,),
    )
    return {
        (group, name): Summary(kind, json.loads(last), count, *map(_number, numbers))
        for group, name, kind, last, count, *numbers in rows
    }


def _stored(number: float | None) -> float | str | None:
    """Encode a value: SQLite turns NaN into NULL, and its integers have 64 bits."""
    if number is None:
        return None
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        number = float(number)
    return "NaN" if math.isnan(number) else number


def _number(stored: float | str | None) -> float | None:
    return math.nan if stored == "NaN" else stored  # type: ignore[return-value]  # only NaN is text
