"""Copy the records of an experiment from the store of another home; repeated, only adds to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from determined.errors import StoreError
from determined.store._connection import open_read_only
from determined.store._identity import read_identity
from determined.store._records import TERMINAL_STATES
from determined.store.write.ownership import mark_foreign
from determined.store.write.relocation import Relocation

_IMPORTABLE = (*TERMINAL_STATES, "PAUSED", "DELETED")  # the last: what forks need of it
_OF_TRIALS = ("report", "summary", "cut", "sample", "task_using")
_OF_SERIES = ("tail", "chunk", "pyramid")
# What an experiment is here is the owner's business; how far it came is not.
_PROGRESS = (
    *("state", "reason", "progress", "config", "searcher_state", "started", "ended", "num_trials"),
    *("checkpoint_count", "checkpoint_size", "best_validation", "best_trial_id"),
)

Row = dict[str, Any]


@dataclass(frozen=True)
class Imported:
    """The result for one experiment: its ids there and here, and those of its trials."""

    number: int
    experiment_id: int
    trials: dict[int, int]
    is_new: bool
    has_grown: bool


class OtherStore:
    """The store of another home, as it is at one moment."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.connection = open_read_only(self.home)
        self.connection.row_factory = sqlite3.Row
        self.connection.execute("BEGIN")
        identity = read_identity(self.connection)
        if identity is None:
            self.close()
            raise StoreError(
                f"{self.home} is a home of an earlier version and has no id yet. `DET_HOME="
                f"{self.home} det supervisor start` gives it one; then import it again."
            )
        self.id = identity.id

    def close(self) -> None:
        self.connection.close()

    def rows(self, table: str, where: str, *values: Any) -> list[Row]:
        found = self.connection.execute(f"SELECT * FROM {table} WHERE {where}", values)
        return [dict(row) for row in found]

    def numbers(self) -> list[int]:
        """The ids of its experiments."""
        return [row["id"] for row in self.rows("experiment", "1 ORDER BY id")]

    def origin(self, number: int) -> str:
        return f"{self.id}:{number}"

    def obstacle(self, number: int) -> str:
        """Why an experiment cannot be imported; nothing if it can."""
        found = self.rows("experiment", "id=?", number)
        if not found:
            return f"there is no experiment {number} in {self.home}"
        unfinished = "ended IS NULL AND trial_id IN (SELECT id FROM trial WHERE experiment_id=?)"
        if found[0]["state"] not in _IMPORTABLE or self.rows("run", unfinished, number):
            return (
                f"experiment {number} of {self.home} has not ended there: wait for it, or "
                f"`DET_HOME={self.home} det experiment kill {number}`"
            )
        return ""


class Import:
    """Copies one experiment at a time, within a transaction of the writer."""

    def __init__(self, connection: sqlite3.Connection, other: OtherStore, home: Path) -> None:
        self._connection = connection
        self._other = other
        self._home = home
        self._relocation = Relocation((str(other.home),), home)

    def copy(self, number: int) -> Imported:
        """Copy what is missing of an experiment."""
        (source,) = self._other.rows("experiment", "id=?", number)
        origin = self._other.origin(number)
        known = self._find("SELECT id FROM experiment WHERE origin=?", origin)
        experiment_id = known if known is not None else self._add_experiment(source, origin)
        trials, grown = self._copy_trials(number, experiment_id)
        self._copy_forks(trials)
        self._copy_steps(number, experiment_id)
        self._copy_events(number, experiment_id, trials, is_new=known is None)
        if known is None or grown:
            self._update_progress(source, experiment_id, trials)
        mark_foreign(self._connection, self._home, experiment_id)
        return Imported(number, experiment_id, trials, known is None, known is None or grown)

    def _find(self, query: str, *values: Any) -> int | None:
        row = self._connection.execute(query, values).fetchone()
        return None if row is None else int(row[0])

    def _insert(self, table: str, row: Mapping[str, Any], *, ignore: bool = False) -> int:
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        word = "OR IGNORE " if ignore else ""
        sql = f"INSERT {word}INTO {table}({names}) VALUES ({marks})"
        return int(self._connection.execute(sql, tuple(row.values())).lastrowid or 0)

    # Experiments

    def _add_experiment(self, source: Row, origin: str) -> int:
        row = {key: value for key, value in source.items() if key != "id"}
        row |= {"origin": origin, "project_id": self._project(source), "gc_is_due": 0}
        row |= {"parent_id": self._parent(source), "best_trial_id": None}
        row |= {name: self._relocation.document(source[name]) for name in ("config", "environment")}
        taken = "SELECT id FROM experiment WHERE external_id=?"
        if source["external_id"] is not None and self._find(taken, source["external_id"]):
            row["external_id"] = None
        return self._insert("experiment", row)

    def _project(self, source: Row) -> int:
        """The project of the same names, if there is one here."""
        (project,) = self._other.rows("project", "id=?", source["project_id"])
        (workspace,) = self._other.rows("workspace", "id=?", project["workspace_id"])
        query = (
            "SELECT project.id FROM project JOIN workspace w ON w.id=workspace_id "
            "WHERE project.name=? AND w.name=?"
        )
        return self._find(query, project["name"], workspace["name"]) or 1

    def _parent(self, source: Row) -> int | None:
        if source["parent_id"] is None:
            return None
        origin = self._other.origin(source["parent_id"])
        return self._find("SELECT id FROM experiment WHERE origin=?", origin)

    def _update_progress(self, source: Row, experiment_id: int, trials: dict[int, int]) -> None:
        row = {name: source[name] for name in _PROGRESS}
        row["config"] = self._relocation.document(source["config"])
        row["best_trial_id"] = trials.get(source["best_trial_id"])
        changes = ", ".join(f"{name}=?" for name in row)
        sql = f"UPDATE experiment SET {changes} WHERE id=?"
        self._connection.execute(sql, (*row.values(), experiment_id))

    # Trials

    def _copy_trials(self, number: int, experiment_id: int) -> tuple[dict[int, int], bool]:
        trials, grown = {}, False
        for source in self._other.rows("trial", "experiment_id=? ORDER BY id", number):
            old = source["id"]
            query = "SELECT id FROM trial WHERE experiment_id=? AND request_id=?"
            new = self._find(query, experiment_id, source["request_id"])
            row = {key: value for key, value in source.items() if key != "id"}
            row |= {"experiment_id": experiment_id}
            row |= {"task_id": f"{experiment_id}.{source['request_id']}"}
            if new is None:
                new = self._insert("trial", row)
            elif self._has_more(old, new):
                changes = ", ".join(f"{name}=?" for name in row)
                values = (*row.values(), new)
                self._connection.execute(f"UPDATE trial SET {changes} WHERE id=?", values)
            else:
                trials[old] = new
                continue
            trials[old], grown = new, True
            self._copy_trial(old, new, row["task_id"], experiment_id)
        return trials, grown

    def _has_more(self, old: int, new: int) -> bool:
        """Whether a trial got more runs, reports or checkpoints since it was copied."""
        return any(
            len(self._other.rows(table, "trial_id=?", old))
            > (self._find(f"SELECT count(*) FROM {table} WHERE trial_id=?", new) or 0)
            for table in ("run", "report", "checkpoint")
        )

    def _copy_trial(self, old: int, new: int, task_id: str, experiment_id: int) -> None:
        """Copy all that was reported; of what a shorter copy had, nothing else was derived."""
        for table in ("run", "journal", "series", *_OF_TRIALS):
            self._connection.execute(f"DELETE FROM {table} WHERE trial_id=?", (new,))
        for run in self._other.rows("run", "trial_id=? ORDER BY run_id", old):
            self._copy_run(run, new, task_id, experiment_id)
        for table in _OF_TRIALS:
            for row in self._other.rows(table, "trial_id=?", old):
                row.pop("id", None)
                self._insert(table, row | {"trial_id": new})
        for series in self._other.rows("series", "trial_id=?", old):
            number = series.pop("id")
            copy = self._insert("series", series | {"trial_id": new})
            for table in _OF_SERIES:
                for row in self._other.rows(table, "series_id=?", number):
                    self._insert(table, row | {"series_id": copy})
        for checkpoint in self._other.rows("checkpoint", "trial_id=?", old):
            self._copy_checkpoint(checkpoint, new, task_id, experiment_id)

    def _copy_forks(self, trials: Mapping[int, int]) -> None:
        """Link forks to their parents here: their own rows begin where those of the parents end."""
        for old, new in trials.items():
            for fork in self._other.rows("fork", "trial_id=?", old):
                (parent,) = self._other.rows("trial", "id=?", fork["parent_trial_id"])
                here = self._find(
                    "SELECT t.id FROM trial t JOIN experiment e ON e.id=t.experiment_id "
                    "WHERE e.origin=? AND t.request_id=?",
                    self._other.origin(parent["experiment_id"]),
                    parent["request_id"],
                )
                if here is None:
                    raise StoreError(
                        f"it is a fork of experiment {parent['experiment_id']} there, which is not "
                        "here: import that first"
                    )
                row = fork | {"trial_id": new, "parent_trial_id": here}
                self._insert("fork", row, ignore=True)

    def _copy_run(self, run: Row, trial_id: int, task_id: str, experiment_id: int) -> None:
        old = run["folder"]
        number = str(run["run_id"])
        parts = ("experiments", str(experiment_id), "trials", str(trial_id), number)
        folder = str(self._home.joinpath(*parts))
        allocation_id = f"{task_id}.{number}"
        changes = {"trial_id": trial_id, "folder": folder, "allocation_id": allocation_id}
        where = "trial_id=? AND run_id=?"
        for journal in self._other.rows("journal", where, run["trial_id"], run["run_id"]):
            path = journal["path"].replace(old, folder, 1)
            self._insert("journal", journal | {"trial_id": trial_id, "path": path})
        self._insert("run", run | changes)

    def _copy_checkpoint(
        self, source: Row, trial_id: int, task_id: str, experiment_id: int
    ) -> None:
        uuid = source["uuid"]
        holder = self._find("SELECT experiment_id FROM checkpoint WHERE uuid=?", uuid)
        if holder is not None and holder != experiment_id:
            raise StoreError(f"its checkpoint {uuid} is here already, in experiment {holder}")
        changes = {"trial_id": trial_id, "experiment_id": experiment_id, "task_id": task_id}
        changes["allocation_id"] = f"{task_id}.{source['run_id']}"
        changes["storage"] = self._relocation.document(source["storage"])
        self._insert("checkpoint", source | changes, ignore=True)

    # The rest

    def _copy_steps(self, number: int, experiment_id: int) -> None:
        for step in self._other.rows("search_step", "experiment_id=?", number):
            self._insert("search_step", step | {"experiment_id": experiment_id}, ignore=True)

    def _copy_events(
        self, number: int, experiment_id: int, trials: dict[int, int], *, is_new: bool
    ) -> None:
        query = "SELECT count(*) FROM event WHERE experiment_id=? AND time=? AND text=?"
        for event in self._other.rows("event", "experiment_id=? ORDER BY id", number):
            event.pop("id")
            if is_new or not self._find(query, experiment_id, event["time"], event["text"]):
                trial_id = trials.get(event["trial_id"])
                self._insert(
                    "event", event | {"experiment_id": experiment_id, "trial_id": trial_id}
                )
