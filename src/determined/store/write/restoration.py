"""Rebuild a store from the readable rows of the old one, and from folders."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from determined.journal import Record
from determined.store._records import (
    CHECKPOINTS,
    EXPERIMENTS,
    JOURNALS,
    RUNS,
    SEARCH_STEPS,
    TRIALS,
    Checkpoint,
    Experiment,
    Run,
    SearchStep,
    Trial,
)
from determined.store.write.ingest import Ingest
from determined.store.write.salvage import raise_sequence, salvage
from determined.store.write.settling import remember_home, settle_within
from determined.store.write.trial_tally import update_best

READ_FROM_JOURNALS = frozenset(
    "report summary series tail chunk pyramid cut sample task_using journal checkpoint".split()  # noqa: SIM905
)
"""Tables whose rows are also in the journals of runs."""

_FORGOTTEN = ("report", "summary", "series", "cut", "sample", "task_using", "journal")
_EVENTS_OF_JOURNALS = ("conflict", "late", "alert", "unknown_record")
_NOTHING_REPORTED = {
    "run_id": 0,
    "total_batches": 0,
    "best_validation": None,
    "best_validation_steps": None,
    "latest_validation": None,
    "latest_validation_steps": None,
}


class Restoration:
    """Operations to rebuild a store, within a transaction."""

    def __init__(self, connection: sqlite3.Connection, ingest: Ingest) -> None:
        self._connection = connection
        self._ingest = ingest

    def salvage(self, damaged: Path, home: Path) -> dict[str, str]:
        """Copy every readable row of an old store; return what went wrong, by table.

        Missing rows may be restored from folders; `drop_orphans` must follow in this transaction.
        """
        self._connection.execute("PRAGMA defer_foreign_keys=ON")
        wrong = salvage(self._connection, damaged)
        settle_within(self._connection, home)
        return wrong

    def remember_home(self, root: Path) -> None:
        """Record where the home was according to its folders, if the old store did not know."""
        remember_home(self._connection, root)

    def experiments(self) -> list[Experiment]:
        """All experiments, by id."""
        return EXPERIMENTS.select(self._connection, "ORDER BY id")

    def trial(self, trial_id: int) -> Trial | None:
        """A trial, None if it is lost."""
        return TRIALS.find(self._connection, "id=?", trial_id)

    def runs(self, trial_id: int) -> list[Run]:
        """The runs of a trial, oldest first."""
        return RUNS.select(self._connection, "WHERE trial_id=? ORDER BY run_id", trial_id)

    def steps(self, experiment_id: int) -> list[SearchStep]:
        """The events of the search, including those it has not processed yet."""
        where = "WHERE experiment_id=? ORDER BY number"
        return SEARCH_STEPS.select(self._connection, where, experiment_id)

    def checkpoints(self, trial_id: int) -> list[Checkpoint]:
        """The records of a trial's checkpoints."""
        return CHECKPOINTS.select(self._connection, "WHERE trial_id=? ORDER BY uuid", trial_id)

    def add_experiment(self, values: Mapping[str, Any]) -> None:
        """Add an experiment with its old id."""
        EXPERIMENTS.insert(self._connection, values)

    def add_trial(self, values: Mapping[str, Any]) -> None:
        """Add a trial with its old id."""
        TRIALS.insert(self._connection, values)

    def add_run(self, values: Mapping[str, Any]) -> None:
        """Add a run with its old number."""
        RUNS.insert(self._connection, values)
        self._connection.execute(
            "UPDATE trial SET run_id=max(run_id, ?) WHERE id=?",
            (values["run_id"], values["trial_id"]),
        )

    def offset(self, path: str) -> int | None:
        """How far a journal was read; None if that is unknown."""
        found = JOURNALS.find(self._connection, "path=?", path)
        return None if found is None else found.offset

    def forget_reports(self, trial_id: int) -> None:
        """Drop everything that came from a trial's journals, except records of checkpoints."""
        for table in _FORGOTTEN:
            self._connection.execute(f"DELETE FROM {table} WHERE trial_id=?", (trial_id,))
        marks = ",".join("?" * len(_EVENTS_OF_JOURNALS))
        self._connection.execute(
            f"DELETE FROM event WHERE trial_id=? AND kind IN ({marks})",
            (trial_id, *_EVENTS_OF_JOURNALS),
        )
        self._ingest.forget()
        TRIALS.update(self._connection, "id=?", [trial_id], _NOTHING_REPORTED)

    def begin_run(self, run: Run) -> None:
        """Start reading the reports of a run: they take precedence over those of older runs."""
        self._ingest.forget_trial(run.trial_id)
        TRIALS.update(self._connection, "id=?", [run.trial_id], {"run_id": run.run_id})
        self._ingest.roll_back(run.trial_id, run.run_id, run.steps_completed)

    def read(self, path: str, run: Run, records: Iterable[Record], offset: int) -> None:
        """Write a journal's records up to `offset`."""
        self._ingest.apply(run.trial_id, run.run_id, records)
        values = (path, run.trial_id, run.run_id, offset)
        self._connection.execute(
            "INSERT OR REPLACE INTO journal(path, trial_id, run_id, offset) VALUES (?,?,?,?)",
            values,
        )

    def finish(self, newest_experiment: int, newest_trial: int) -> None:
        """Correct the counts, and let new ids start after all ids that folders have."""
        self._ingest.flush()
        self._ingest.forget()
        raise_sequence(self._connection, "experiment", newest_experiment)
        raise_sequence(self._connection, "trial", newest_trial)
        count = "SELECT count(*) FROM checkpoint c WHERE c.state<>'DELETED' AND c.{key}={table}.id"
        size = "SELECT total(size) FROM checkpoint c WHERE c.{key}={table}.id"
        for table, key in (("trial", "trial_id"), ("experiment", "experiment_id")):
            self._connection.execute(
                f"UPDATE {table} SET checkpoint_count=({count.format(table=table, key=key)}), "
                f"checkpoint_size=cast(({size.format(table=table, key=key)}) AS INTEGER)"
            )
        self._connection.execute(
            "UPDATE experiment SET num_trials="
            "(SELECT count(*) FROM trial t WHERE t.experiment_id=experiment.id)"
        )
        for experiment in self.experiments():
            update_best(self._connection, experiment.id, experiment.smaller_is_better)

    def drop_orphans(self) -> int:
        """Drop rows that refer to missing rows; return how many."""
        query = "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite_%'"
        tables = [name for (name,) in self._connection.execute(query)]
        dropped = 0
        while True:
            before = dropped
            for table in tables:
                links = self._connection.execute(f"PRAGMA foreign_key_list({table})").fetchall()
                for _, _, parent, column, key, *_ in links:
                    dropped += self._connection.execute(
                        f"DELETE FROM {table} WHERE {column} IS NOT NULL "
                        f"AND {column} NOT IN (SELECT {key} FROM {parent})"
                    ).rowcount
            if dropped == before:
                return dropped
