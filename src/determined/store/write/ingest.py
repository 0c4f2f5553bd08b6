"""Turn the records of a run's journal into rows: merging, rollback, summaries, decisive records."""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from determined import journal
from determined.store._records import CHECKPOINTS, EVENTS, PROFILER_GROUPS
from determined.store.series.summary import type_of
from determined.store.series.writer import SeriesKey, SeriesWriter
from determined.store.write.trial_tally import TrialTally

_MAX_REMEMBERED_SERIES = 100_000
_BUILT_IN = ("training", "validation")
_ROUTINE = (
    journal.SystemSamples,
    journal.Heartbeat,
    journal.Status,
    journal.Progress,
    journal.Metadata,
    journal.Alert,
    journal.TaskUsing,
    journal.CheckpointAnnounced,
    journal.Introduction,
)


@dataclass(frozen=True)
class AcceptedRecord:
    """A record that was accepted and may call for a decision."""

    experiment_id: int
    trial_id: int
    run_id: int
    record: journal.Record
    is_repeat: bool = False
    """A validation at a step that the searcher already knows, from this run or an older one."""


def is_decisive(record: journal.Record) -> bool:
    """Whether a record may lead to a decision, so its transaction must be durable."""
    if isinstance(record, journal.Metrics):
        return record.group == "validation"
    return not isinstance(record, _ROUTINE)


class Ingest:
    """Applies records within the writer's transactions, and caches tallies between them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._series = SeriesWriter(connection)
        self._tallies: dict[int, TrialTally] = {}
        self._touched: set[int] = set()

    def apply(
        self, trial_id: int, run_id: int, records: Iterable[journal.Record]
    ) -> list[AcceptedRecord]:
        """Write a run's records in order; return those that may call for a decision."""
        tally = self._tally(trial_id)
        self._touched.add(trial_id)
        accepted = []
        for record in records:
            is_repeat = _RULES[type(record)](self, tally, run_id, record)
            if is_repeat is not None and is_decisive(record):
                accepted.append(
                    AcceptedRecord(tally.experiment_id, trial_id, run_id, record, is_repeat)
                )
        return accepted

    def roll_back(self, trial_id: int, run_id: int, steps_completed: int) -> None:
        """Hide reports of a trial's older runs beyond the step at which a new run starts."""
        self._touched.add(trial_id)
        self._tally(trial_id).roll_back(run_id, lambda group, per_batch: steps_completed)

    def flush(self) -> None:
        """Write what was collected; call this before the commit."""
        self._series.flush()
        for trial_id in self._touched & self._tallies.keys():
            self._tallies[trial_id].flush()
        self._touched.clear()
        if self._series.num_remembered > _MAX_REMEMBERED_SERIES:
            self.forget()

    def forget(self) -> None:
        """Drop the cache: a transaction failed, or rows were changed elsewhere."""
        self._series.forget()
        self._tallies.clear()
        self._touched.clear()

    def forget_trial(self, trial_id: int) -> None:
        """Write what is cached about a trial, then drop it."""
        self._series.flush()
        tally = self._tallies.pop(trial_id, None)
        if tally is not None:
            tally.flush()

    def _tally(self, trial_id: int) -> TrialTally:
        tally = self._tallies.get(trial_id)
        if tally is None:
            tally = self._tallies[trial_id] = TrialTally(self._connection, trial_id)
        return tally

    def metrics(self, tally: TrialTally, run_id: int, record: journal.Metrics) -> bool | None:
        """Merge a report into the rows; None if it came too late to count."""
        if record.group in PROFILER_GROUPS:
            samples = journal.SystemSamples(record.group, record.metrics, time=record.time)
            self.samples(tally, run_id, samples)
            return None
        if record.steps_completed <= tally.fork_at:
            return None  # it is the parent's row
        if run_id < tally.run_id:
            self._event(tally, run_id, "late", f"{_place(record)} came after a newer run began.")
            return None
        tally.roll_back(run_id, _limits_of_report(record))
        is_repeat = tally.knows_validation(record)
        row = tally.find_report(record.group, record.steps_completed)
        batches = record.batches
        if row is None:
            added = record.metrics
            tally.insert_report(run_id, record)
        else:
            added, batches = self._merge(tally, run_id, record, row)
        self._add_points(tally, run_id, record, added, batches)
        tally.count(record.group, record.steps_completed, added)
        return is_repeat

    def _merge(
        self,
        tally: TrialTally,
        run_id: int,
        record: journal.Metrics,
        row: tuple[int, str, bytes | None],
    ) -> tuple[dict[str, Any], journal.BatchColumns | None]:
        report_id, text, old_batches = row
        kept: dict[str, Any] = json.loads(text)
        added = {name: value for name, value in record.metrics.items() if name not in kept}
        for name, value in record.metrics.items():
            if name in kept and not same_value(kept[name], value):
                self._conflict(tally, run_id, record, name, kept[name], value)
        batches = record.batches
        if batches is not None and old_batches is not None:
            if batches.to_bytes() != old_batches:
                self._conflict(tally, run_id, record, "batch_metrics", None, None)
            batches = None
        if added or batches is not None:
            tally.replace_report(report_id, kept | added, batches)
        return added, batches

    def _conflict(
        self,
        tally: TrialTally,
        run_id: int,
        record: journal.Metrics,
        name: str,
        kept: Any,
        refused: Any,
    ) -> None:
        details = {"group": record.group, "steps_completed": record.steps_completed, "name": name}
        self._event(
            tally,
            run_id,
            "conflict",
            f"{_place(record)} gave a second, different value for {name!r}; the first is kept.",
            details | {"kept": kept, "refused": refused},
        )

    def _add_points(
        self,
        tally: TrialTally,
        run_id: int,
        record: journal.Metrics,
        metrics: dict[str, Any],
        batches: journal.BatchColumns | None,
    ) -> None:
        for name, value in metrics.items():
            if type_of(value) == "number":
                key = SeriesKey(tally.trial_id, record.group, name, False, run_id)
                self._series.add(key, record.steps_completed, record.time, value)
        if batches is None:
            return
        first = record.steps_completed - batches.count + 1
        for name, column in batches.columns.items():
            if isinstance(column.values, array):
                rows = range(batches.count) if column.rows is None else column.rows
                key = SeriesKey(tally.trial_id, record.group, name, True, run_id)
                steps = array("q", [first + row for row in rows])
                self._series.add_column(key, steps, record.time, column.values)

    def run_started(self, tally: TrialTally, run_id: int, record: journal.RunStarted) -> bool:
        """Hide reports of older runs beyond the step at which this one starts."""
        self.roll_back(tally.trial_id, run_id, record.steps_completed)
        self._connection.execute(
            "UPDATE run SET started=coalesce(started, ?), steps_completed=? "
            "WHERE trial_id=? AND run_id=?",
            (record.time, record.steps_completed, tally.trial_id, run_id),
        )
        return False

    def checkpoint(self, tally: TrialTally, run_id: int, record: journal.Checkpoint) -> bool:
        """Record a published checkpoint, unless it was adopted before."""
        exists = CHECKPOINTS.find(self._connection, "uuid=?", record.uuid)
        if exists is None:
            size = sum(record.resources.values())
            values = {
                "uuid": record.uuid,
                "trial_id": tally.trial_id,
                "experiment_id": tally.experiment_id,
                "run_id": run_id,
                "task_id": tally.task_id,
                "allocation_id": f"{tally.task_id}.{run_id}",
                "state": "COMPLETED",
                "steps_completed": record.steps_completed,
                "resources": record.resources,
                "metadata": record.metadata,
                "size": size,
                "storage": tally.storage,
                "report_time": record.time,
            }
            CHECKPOINTS.insert(self._connection, values)
            self._connection.execute(
                "UPDATE checkpoint SET hashes=? WHERE uuid=?", (record.hashes, record.uuid)
            )
            count_checkpoint(self._connection, tally.trial_id, tally.experiment_id, 1, size)
        return exists is not None

    def checkpoint_deleted(
        self, tally: TrialTally, run_id: int, record: journal.CheckpointDeleted
    ) -> bool:
        """The training code deleted a checkpoint; its record stays."""
        set_checkpoint_files(self._connection, record.uuid, "DELETED", {})
        return False

    def early_exit(self, tally: TrialTally, run_id: int, record: journal.EarlyExit) -> bool:
        """Keep the first reason given by any rank."""
        changed = self._connection.execute(
            "UPDATE trial SET early_exit=? WHERE id=? AND early_exit IS NULL",
            (record.reason, tally.trial_id),
        ).rowcount
        return changed == 0

    def acknowledged(
        self, tally: TrialTally, run_id: int, record: journal.PreemptionAcknowledged
    ) -> bool:
        """The run is about to save a checkpoint and exit because it was preempted."""
        self._connection.execute(
            "UPDATE run SET acknowledged=1 WHERE trial_id=? AND run_id=?", (tally.trial_id, run_id)
        )
        return False

    def samples(self, tally: TrialTally, run_id: int, record: journal.SystemSamples) -> None:
        """Store system metrics of a machine."""
        self._connection.execute(
            "INSERT INTO sample(trial_id, run_id, grp, time, samples) VALUES (?,?,?,?,?)",
            (tally.trial_id, run_id, record.group, record.time, json.dumps(record.samples)),
        )

    def alert(self, tally: TrialTally, run_id: int, record: journal.Alert) -> None:
        """Store an alert from the user's code."""
        text = ": ".join(part for part in (record.title, record.description) if part)
        self._event(tally, run_id, "alert", text, level=record.level, time=record.time)

    def environment(self, tally: TrialTally, run_id: int, record: journal.Environment) -> None:
        """Store what a run computes with; what differs from before is worth a look."""
        details = {"environment": record.environment, "differences": record.differences}
        text = "; ".join(record.differences)
        level = "warn" if record.differences else "debug"
        self._event(tally, run_id, "environment", text, details, level, record.time)

    def task_using(self, tally: TrialTally, run_id: int, record: journal.TaskUsing) -> None:
        """Link the trial to a checkpoint or model version."""
        self._connection.execute(
            "INSERT OR IGNORE INTO task_using(trial_id, what, identifier, time) VALUES (?,?,?,?)",
            (tally.trial_id, record.what, record.identifier, record.time),
        )

    def progress(self, tally: TrialTally, run_id: int, record: journal.Progress) -> None:
        """Update the progress of the trial."""
        tally.set_column("progress", record.progress)

    def status(self, tally: TrialTally, run_id: int, record: journal.Status) -> None:
        """Update what the trial is doing now."""
        tally.set_column("status", record.status)

    def metadata(self, tally: TrialTally, run_id: int, record: journal.Metadata) -> None:
        """Replace the free-form metadata of the trial."""
        tally.set_column("metadata", record.metadata)

    def heartbeat(self, tally: TrialTally, run_id: int, record: journal.Heartbeat) -> None:
        """The run is alive."""
        self._connection.execute(
            "UPDATE run SET heartbeat=? WHERE trial_id=? AND run_id=?",
            (record.time, tally.trial_id, run_id),
        )

    def announced(
        self, tally: TrialTally, run_id: int, record: journal.CheckpointAnnounced
    ) -> None:
        """Do nothing: the checkpoint does not exist yet; it is looked for when the run ends."""

    def recorded_elsewhere(self, tally: TrialTally, run_id: int, record: journal.Record) -> None:
        """Do nothing: the reader of an unmanaged run's journal handles its start and end."""

    def unknown(self, tally: TrialTally, run_id: int, record: journal.Unknown) -> None:
        """Report that a record was skipped."""
        text = f"A journal record of kind {record.number} is not known to this version."
        self._event(tally, run_id, "unknown_record", text)

    def _event(
        self,
        tally: TrialTally,
        run_id: int,
        kind: str,
        text: str,
        details: dict[str, Any] | None = None,
        level: str = "warn",
        time: float | None = None,
    ) -> None:
        values = {
            "time": journal.Heartbeat().time if time is None else time,
            "kind": kind,
            "level": level,
            "experiment_id": tally.experiment_id,
            "trial_id": tally.trial_id,
            "run_id": run_id,
            "text": text,
            "details": details or {},
        }
        EVENTS.insert(self._connection, values)


def _place(record: journal.Metrics) -> str:
    return f"A report of group {record.group!r} at step {record.steps_completed}"


def _limits_of_report(record: journal.Metrics) -> Callable[[str, bool], int]:
    """The step up to which a newer run's report keeps older runs' points: by group, per batch."""

    def limit(group: str, per_batch: bool) -> int:
        both_custom = group not in _BUILT_IN and record.group not in _BUILT_IN
        if group != record.group and not both_custom:
            return record.steps_completed
        if per_batch and record.batches is not None:
            return record.steps_completed - max(record.batches.count, 1)
        return record.steps_completed - 1

    return limit


def same_value(old: Any, new: Any) -> bool:
    """Whether two reported values are equal; NaN equals NaN."""
    return bool(old == new) or json.dumps(old) == json.dumps(new)


_RULES: dict[type[journal.Record], Callable[[Ingest, TrialTally, int, Any], bool | None]] = {
    journal.Metrics: Ingest.metrics,
    journal.RunStarted: Ingest.run_started,
    journal.Checkpoint: Ingest.checkpoint,
    journal.CheckpointDeleted: Ingest.checkpoint_deleted,
    journal.EarlyExit: Ingest.early_exit,
    journal.PreemptionAcknowledged: Ingest.acknowledged,
    journal.SystemSamples: Ingest.samples,
    journal.Alert: Ingest.alert,
    journal.TaskUsing: Ingest.task_using,
    journal.Heartbeat: Ingest.heartbeat,
    journal.CheckpointAnnounced: Ingest.announced,
    journal.Introduction: Ingest.recorded_elsewhere,
    journal.Ended: Ingest.recorded_elsewhere,
    journal.Environment: Ingest.environment,
    journal.Unknown: Ingest.unknown,
    journal.Progress: Ingest.progress,
    journal.Status: Ingest.status,
    journal.Metadata: Ingest.metadata,
}


def count_checkpoint(
    connection: sqlite3.Connection,
    trial_id: int | None,
    experiment_id: int | None,
    count: int,
    size: int,
) -> None:
    """Update the counts of checkpoints and bytes that trials and experiments show."""
    for table, key in (("trial", trial_id), ("experiment", experiment_id)):
        connection.execute(
            f"UPDATE {table} SET checkpoint_count=checkpoint_count+?, "
            "checkpoint_size=checkpoint_size+? WHERE id=?",
            (count, size, key),
        )


def set_checkpoint_files(
    connection: sqlite3.Connection, uuid: str, state: str, resources: dict[str, int]
) -> bool:
    """Record the new state and remaining files of a checkpoint; False if it is unknown."""
    old = CHECKPOINTS.find(connection, "uuid=?", uuid)
    if old is None:
        return False
    size = sum(resources.values())
    values = {"state": state, "resources": resources, "size": size}
    CHECKPOINTS.update(connection, "uuid=?", [uuid], values)
    gone = int(state == "DELETED" and old.state != "DELETED")
    count_checkpoint(connection, old.trial_id, old.experiment_id, -gone, size - old.size)
    return True
