"""What the supervisor may do within one transaction: read journals, decide, answer."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from determined.errors import StoreError
from determined.journal import Record
from determined.store._forks import Forks, needed_steps
from determined.store._records import (
    CHECKPOINTS,
    COMMANDS,
    EVENTS,
    EXPERIMENTS,
    FORKS,
    HAS_CALLS,
    JOURNALS,
    OVER_STATES,
    RUNS,
    SEARCH_STEPS,
    TERMINAL_STATES,
    TRIALS,
    Checkpoint,
    Command,
    Experiment,
    Fork,
    JournalPosition,
    NewExperiment,
    NewTrial,
    Run,
    SearchStep,
    Trial,
    is_exact,
)
from determined.store._rows import read_searcher_state
from determined.store.write.deletions import Deletions, keep_shared
from determined.store.write.importing import Import, Imported, OtherStore
from determined.store.write.ingest import (
    AcceptedRecord,
    Ingest,
    set_checkpoint_files,
)
from determined.store.write.registry import Registry
from determined.store.write.restoration import Restoration
from determined.store.write.settling import adopt
from determined.store.write.trial_tally import update_best

T = TypeVar("T")


class Transaction:
    """The operations of the single writer, which are committed together or not at all.

    Everything except `read_journal` and `note` decides or answers something and needs a durable
    transaction: the commit must be on disk before anyone acts on it.
    """

    def __init__(self, connection: sqlite3.Connection, ingest: Ingest, is_durable: bool) -> None:
        self._connection = connection
        self._ingest = ingest
        self._is_durable = is_durable

    @property
    def registry(self) -> Registry:
        """Workspaces, projects and models."""
        self._decide()
        return Registry(self._connection)

    @property
    def deletions(self) -> Deletions:
        """Deletions of checkpoint files."""
        self._decide()
        return Deletions(self._connection)

    @property
    def forks(self) -> Forks:
        """Trials that share the first batches of others."""
        return Forks(self._connection)

    def adopt_home(self, home: Path) -> int:
        """Make a copy of a home a home of its own; return how many checkpoints are outside it."""
        self._decide()
        return adopt(self._connection, home)

    def import_experiment(self, other: OtherStore, number: int, home: Path) -> Imported:
        """Copy what is missing here of another home's experiment."""
        self._decide()
        imported = Import(self._connection, other, home).copy(number)
        self._ingest.forget()
        return imported

    @property
    def restoration(self) -> Restoration:
        """Operations for rebuilding the store."""
        self._decide()
        return Restoration(self._connection, self._ingest)

    # Journals

    def read_journal(
        self, path: str, trial_id: int, run_id: int, records: Iterable[Record], offset: int
    ) -> list[AcceptedRecord]:
        """Write a journal's records up to `offset`; return those that may call for a decision.

        After a crash, reading continues at `offset`, so no record counts twice.
        """
        accepted = self._ingest.apply(trial_id, run_id, records)
        if accepted:
            self._decide()
        self._connection.execute(
            "INSERT INTO journal(path, trial_id, run_id, offset) VALUES (?,?,?,?) "
            "ON CONFLICT DO UPDATE SET offset=excluded.offset",
            (path, trial_id, run_id, offset),
        )
        return accepted

    def journal(self, path: str) -> JournalPosition | None:
        """How far a journal was read, and its run; None if it is unknown."""
        return JOURNALS.find(self._connection, "path=?", path)

    def set_damage(self, path: str, damage: str) -> None:
        """Record damage at the end or in the middle of a journal."""
        self._connection.execute("UPDATE journal SET damage=? WHERE path=?", (damage, path))

    def note(
        self,
        kind: str,
        text: str,
        *,
        level: str = "info",
        experiment_id: int | None = None,
        trial_id: int | None = None,
        run_id: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        """Add an event to the history that users read."""
        values = {
            "time": time.time(),
            "kind": kind,
            "level": level,
            "experiment_id": experiment_id,
            "trial_id": trial_id,
            "run_id": run_id,
            "text": text,
            "details": details or {},
        }
        EVENTS.insert(self._connection, values)

    # Commands

    def unanswered(self) -> list[Command]:
        """The unanswered commands, in the order in which they were sent."""
        return COMMANDS.select(self._connection, "WHERE answered IS NULL ORDER BY number")

    def command(self, uuid: str) -> Command | None:
        """A command and, once there is one, its answer."""
        return COMMANDS.find(self._connection, "uuid=?", uuid)

    def answer(self, uuid: str, is_ok: bool, answer: dict[str, Any]) -> None:
        """Answer a command, with the state that resulted from it."""
        self._decide()
        values = {"answered": time.time(), "is_ok": is_ok, "answer": answer}
        if not COMMANDS.update(self._connection, "uuid=? AND answered IS NULL", [uuid], values):
            raise StoreError(f"There is no unanswered command {uuid}.")

    # Experiments and the search

    def create_experiment(self, new: NewExperiment) -> Experiment:
        """Add an experiment; ids count from 1 and are never reused."""
        self._decide()
        values = _fields(new) | {"created": time.time()}
        return self.experiment(EXPERIMENTS.insert(self._connection, values))

    @property
    def last_experiment_id(self) -> int:
        """The last id assigned, even if that experiment was deleted; 0 if there is none."""
        query = "SELECT seq FROM sqlite_sequence WHERE name='experiment'"
        row = self._connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    def experiment(self, experiment_id: int) -> Experiment:
        """The experiment as it is within this transaction."""
        found = EXPERIMENTS.find(self._connection, "id=?", experiment_id)
        return _existing(found, "experiment", experiment_id)

    def update_experiment(self, experiment_id: int, **changes: Any) -> None:
        """Set fields of an experiment; a terminal state sets its end, any other one clears it."""
        self._decide()
        changes = self._with_end("experiment", changes)
        if not EXPERIMENTS.update(self._connection, "id=?", [experiment_id], changes):
            _existing(None, "experiment", experiment_id)
        if "smaller_is_better" in changes or "searcher_metric" in changes:
            self._ingest.forget()
            update_best(
                self._connection, experiment_id, self.experiment(experiment_id).smaller_is_better
            )

    def find_external_experiment(self, external_id: str) -> Experiment | None:
        """The experiment with an external id."""
        return EXPERIMENTS.find(self._connection, "external_id=?", external_id)

    def find_imported(self, origin: str) -> Experiment | None:
        """The experiment that was imported from somewhere."""
        return EXPERIMENTS.find(self._connection, "origin=?", origin)

    def find_external_trial(self, experiment_id: int, external_id: str) -> Trial | None:
        """The trial of an experiment with an external id."""
        self._ingest.flush()
        where = "experiment_id=? AND external_id=?"
        return TRIALS.find(self._connection, where, experiment_id, external_id)

    def find_tracked_trial(self, run_id: str | None) -> Trial | None:
        """The newest trial of a tracked run; experiments with external ids are left out."""
        self._ingest.flush()
        among = "SELECT id FROM experiment WHERE unmanaged=1 AND external_id IS NULL"
        where = f"external_id=? AND experiment_id IN ({among}) ORDER BY id DESC"
        return TRIALS.find(self._connection, where, run_id)

    def unfinished_experiments(self) -> list[Experiment]:
        """The experiments that are neither finished nor deleted, by id."""
        over = ",".join("?" * len(OVER_STATES))
        where = f"WHERE ended IS NULL AND state NOT IN ({over}) AND unmanaged=0 ORDER BY id"
        return EXPERIMENTS.select(self._connection, where, *OVER_STATES)

    def with_policies(self) -> list[int]:
        """The experiments of which the platform decides which checkpoints stay."""
        query = (
            "SELECT id FROM experiment WHERE checkpoint_count>0 AND state NOT LIKE 'DELET%' AND "
            "json_type(config, '$.checkpoint_storage.save_trial_latest') IS NOT NULL"
        )
        return [number for (number,) in self._connection.execute(query)]

    def with_garbage(self) -> list[int]:
        """The experiments whose checkpoints await garbage collection."""
        rows = self._connection.execute("SELECT id FROM experiment WHERE gc_is_due ORDER BY id")
        return [row[0] for row in rows]

    def with_state(self, state: str) -> list[Experiment]:
        """The experiments in a state, by id."""
        return EXPERIMENTS.select(self._connection, "WHERE state=? ORDER BY id", state)

    def with_calls(self) -> list[Experiment]:
        """The experiments with pending calls about their end."""
        return EXPERIMENTS.select(self._connection, f"WHERE {HAS_CALLS} ORDER BY id")

    def search_steps(self, experiment_id: int, after: int = 0) -> list[SearchStep]:
        """The searcher's events and decisions, from a number on."""
        where = "WHERE experiment_id=? AND number>? AND actions<>'null' ORDER BY number"
        return SEARCH_STEPS.select(self._connection, where, experiment_id, after)

    def pending_events(self, experiment_id: int) -> list[SearchStep]:
        """The events that the searcher has not processed yet, in order."""
        where = "WHERE experiment_id=? AND actions='null' ORDER BY number"
        return SEARCH_STEPS.select(self._connection, where, experiment_id)

    def searcher_state(self, experiment_id: int) -> dict[str, Any] | None:
        """The searcher's state after its last event."""
        return read_searcher_state(self._connection, experiment_id)

    def record_search(
        self,
        experiment_id: int,
        state: dict[str, Any] | None,
        event: dict[str, Any],
        actions: list[dict[str, Any]],
        sentence: str = "",
        number: int | None = None,
    ) -> int:
        """Record an event, what was decided and why; return its number.

        With a `state`, the search resumes from it after a restart; otherwise from an older one and
        the events since then. With a `number`, `add_pending_event` has recorded the event before.
        """
        self._decide()
        if number is None:
            number = self._add_step(experiment_id, event, actions, sentence)
        else:
            values = {"event": event, "actions": actions, "sentence": sentence}
            where = "experiment_id=? AND number=?"
            SEARCH_STEPS.update(self._connection, where, [experiment_id, number], values)
        if state is not None:
            self._connection.execute(
                "UPDATE experiment SET searcher_state=? WHERE id=?",
                (json.dumps(state), experiment_id),
            )
        return number

    def add_pending_event(self, experiment_id: int, event: dict[str, Any]) -> int:
        """Record an event that the searcher will process later; return its number."""
        self._decide()
        return self._add_step(experiment_id, event, None, "")

    def _add_step(
        self,
        experiment_id: int,
        event: dict[str, Any],
        actions: list[dict[str, Any]] | None,
        sentence: str,
    ) -> int:
        (number,) = self._connection.execute(
            "SELECT coalesce(max(number), 0) + 1 FROM search_step WHERE experiment_id=?",
            (experiment_id,),
        ).fetchone()
        self._connection.execute(
            "INSERT INTO search_step(experiment_id, number, time, event, actions, sentence) "
            "VALUES (?,?,?,?,?,?)",
            (
                *(experiment_id, number, time.time()),
                *(json.dumps(event), json.dumps(actions), sentence),
            ),
        )
        return int(number)

    def delete_experiment(self, experiment_id: int, most_trials: int = -1) -> bool:
        """Remove an experiment with its trials, metrics and records of checkpoints.

        With `most_trials`, remove only that many trials, so that others need not wait; False if
        there are more. The experiment is removed with the last of them. What forks need stays,
        until they are removed: trials with the rows that they share, in a deleted experiment.
        """
        self._decide()
        self._ingest.forget()
        parents = [fork.parent_trial_id for fork in self._forks_in(experiment_id)]
        needed = needed_steps(self._connection, experiment_id)
        unneeded = f"experiment_id=? AND id NOT IN ({','.join('?' * len(needed))})"
        # The newest first: a trial that a search forked refers to an older one.
        newest = f"SELECT id FROM trial WHERE {unneeded} ORDER BY id DESC LIMIT ?"
        self._connection.execute(
            f"DELETE FROM trial WHERE id IN ({newest})",
            (experiment_id, *needed, most_trials),
        )
        is_over = TRIALS.find(self._connection, unneeded, experiment_id, *needed) is None
        if is_over and needed:
            keep_shared(self._connection, experiment_id, needed)
            values = {"state": "DELETED", "archived": True, "reason": "forks need a part of it"}
            EXPERIMENTS.update(self._connection, "id=?", [experiment_id], values)
        elif is_over:
            self._connection.execute("DELETE FROM experiment WHERE id=?", (experiment_id,))
        self._ingest.forget()
        for trial_id in parents:
            self._release(trial_id)
        return is_over

    def _forks_in(self, experiment_id: int) -> list[Fork]:
        where = "WHERE trial_id IN (SELECT id FROM trial WHERE experiment_id=?)"
        return FORKS.select(self._connection, where, experiment_id)

    def _release(self, trial_id: int) -> None:
        """Let the files and rows go that a deleted experiment kept for forks that are gone."""
        trial = TRIALS.find(self._connection, "id=?", trial_id)
        if trial is None or self.experiment(trial.experiment_id).state != "DELETED":
            return
        if not needed_steps(self._connection, trial.experiment_id):
            self.deletions.begin_all(trial.experiment_id)
            EXPERIMENTS.update(
                self._connection, "id=?", [trial.experiment_id], {"state": "DELETING"}
            )

    # Trials and runs

    def create_trial(self, new: NewTrial) -> Trial:
        """Add a trial; the request id links it to the searcher's state."""
        self._decide()
        task_id = f"{new.experiment_id}.{new.request_id}"
        values = _fields(new) | {"task_id": task_id, "created": time.time()}
        trial_id = TRIALS.insert(self._connection, values)
        self._connection.execute(
            "UPDATE experiment SET num_trials=num_trials+1 WHERE id=?", (new.experiment_id,)
        )
        return self.trial(trial_id)

    def trial(self, trial_id: int) -> Trial:
        """The trial as it is within this transaction, with everything read so far."""
        self._ingest.flush()
        return _existing(TRIALS.find(self._connection, "id=?", trial_id), "trial", trial_id)

    def trials(self, experiment_id: int, states: Iterable[str] = ()) -> list[Trial]:
        """The trials of an experiment, by id; only those in `states` if any are given."""
        self._ingest.flush()
        wanted = list(states)
        among = f"AND state IN ({','.join('?' * len(wanted))}) " if wanted else ""
        where = f"WHERE experiment_id=? {among}ORDER BY id"
        return TRIALS.select(self._connection, where, experiment_id, *wanted)

    def update_trial(self, trial_id: int, **changes: Any) -> None:
        """Set fields of a trial; a terminal state sets its end, any other one clears it."""
        self._decide()
        self._ingest.forget_trial(trial_id)
        changes = self._with_end("trial", changes)
        if not TRIALS.update(self._connection, "id=?", [trial_id], changes):
            _existing(None, "trial", trial_id)

    def create_run(
        self,
        trial_id: int,
        *,
        folder: str,
        slots: list[int],
        steps_completed: int,
        from_checkpoint: str | None = None,
        host: str = "",
    ) -> Run:
        """Add the next run of a trial. Call this after the last run's journals are drained.

        Reports of older runs beyond `steps_completed` are hidden from now on, so that the best
        validation passed to the run is one that it can beat.
        """
        trial = self.trial(trial_id)
        run_id = trial.run_id + 1
        now = time.time()
        self.update_trial(trial_id, run_id=run_id, started=trial.started or now)
        self._connection.execute(
            "UPDATE experiment SET started=coalesce(started, ?) WHERE id=?",
            (now, trial.experiment_id),
        )
        values = {
            "trial_id": trial_id,
            "run_id": run_id,
            "allocation_id": f"{trial.task_id}.{run_id}",
            "folder": folder,
            "host": host,
            "slots": slots,
            "steps_completed": steps_completed,
            "from_checkpoint": from_checkpoint,
            "created": now,
        }
        RUNS.insert(self._connection, values)
        self._ingest.roll_back(trial_id, run_id, steps_completed)
        return self.run(trial_id, run_id)

    def run(self, trial_id: int, run_id: int) -> Run:
        """The run as it is within this transaction."""
        found = RUNS.find(self._connection, "trial_id=? AND run_id=?", trial_id, run_id)
        return _existing(found, "run", f"{trial_id}.{run_id}")

    def run_folders(self, experiment_id: int) -> list[str]:
        """The folders of all runs of an experiment."""
        query = (
            "SELECT folder FROM run WHERE trial_id IN (SELECT id FROM trial WHERE experiment_id=?)"
        )
        return [folder for (folder,) in self._connection.execute(query, (experiment_id,))]

    def seconds_run(self, trial_id: int) -> float:
        """The total time of a trial's finished runs, in seconds."""
        query = "SELECT total(ended - created) FROM run WHERE trial_id=? AND ended IS NOT NULL"
        return float(self._connection.execute(query, (trial_id,)).fetchone()[0])

    def slot_seconds_run(self, experiment_id: int) -> float:
        """The total time of all slots of an experiment's finished runs, in seconds."""
        query = (
            "SELECT total((run.ended - run.created) * json_array_length(run.slots)) "
            "FROM trial JOIN run ON run.trial_id=trial.id "
            "WHERE trial.experiment_id=? AND run.ended IS NOT NULL"
        )
        return float(self._connection.execute(query, (experiment_id,)).fetchone()[0])

    def unfinished_runs(self) -> list[Run]:
        """The runs that have no recorded end."""
        return RUNS.select(self._connection, "WHERE ended IS NULL ORDER BY trial_id, run_id")

    def preempt_run(self, trial_id: int, run_id: int, reason: str) -> None:
        """Record that a run was preempted to make room for others."""
        self._decide()
        values = {"preempted": reason}
        RUNS.update(self._connection, "trial_id=? AND run_id=?", [trial_id, run_id], values)

    def end_run(self, trial_id: int, run_id: int, exit_code: int | None, reason: str = "") -> None:
        """Record how a run ended."""
        self._decide()
        self._ingest.forget_trial(trial_id)
        values = {"ended": time.time(), "exit_code": exit_code, "reason": reason}
        RUNS.update(self._connection, "trial_id=? AND run_id=?", [trial_id, run_id], values)

    def update_run(self, trial_id: int, run_id: int, **changes: Any) -> None:
        """Set fields of a run."""
        self._decide()
        RUNS.update(self._connection, "trial_id=? AND run_id=?", [trial_id, run_id], changes)

    # Checkpoints

    def latest_checkpoint(self, trial_id: int) -> Checkpoint | None:
        """The complete checkpoint with the most steps, from which the trial's next run resumes.

        One that is not exact, saved after an error, is left out.
        """
        return CHECKPOINTS.find(
            self._connection,
            f"trial_id=? AND state='COMPLETED' AND {is_exact('checkpoint')} "
            "ORDER BY steps_completed DESC, report_time DESC",
            trial_id,
        )

    def checkpoint(self, uuid: str) -> Checkpoint | None:
        """The record of a checkpoint."""
        return CHECKPOINTS.find(self._connection, "uuid=?", uuid)

    def adopt_checkpoint(self, trial_id: int, run_id: int, record: Record) -> bool:
        """Record a checkpoint that was published but not reported; False if already known."""
        self._decide()
        accepted = self._ingest.apply(trial_id, run_id, [record])
        return not accepted[0].is_repeat

    def set_checkpoint_files(self, uuid: str, state: str, resources: dict[str, int]) -> bool:
        """Record that files of a checkpoint were deleted; its record stays."""
        self._decide()
        return set_checkpoint_files(self._connection, uuid, state, resources)

    def update_checkpoint_metadata(self, uuid: str, metadata: dict[str, Any]) -> None:
        """Replace the metadata of a checkpoint."""
        self._decide()
        CHECKPOINTS.update(self._connection, "uuid=?", [uuid], {"metadata": metadata})

    def _decide(self) -> None:
        assert self._is_durable, "a decision needs transaction(durable=True)"

    @staticmethod
    def _with_end(what: str, changes: dict[str, Any]) -> dict[str, Any]:
        if "state" not in changes or "ended" in changes:
            return changes
        is_over = changes["state"] in TERMINAL_STATES
        return changes | {"ended": time.time() if is_over else None}


def _fields(new: NewExperiment | NewTrial) -> dict[str, Any]:
    return {field.name: getattr(new, field.name) for field in dataclasses.fields(new)}


def _existing(found: T | None, what: str, identifier: object) -> T:
    if found is None:
        raise StoreError(f"There is no {what} {identifier}.")
    return found
