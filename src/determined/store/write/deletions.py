"""Deletions of checkpoint files: recorded first, so that they survive any crash.

And what stays of a deleted trial: the rows that its forks share.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Iterable, Mapping, Sequence

from determined.store._forks import bases, pinned
from determined.store._records import CHECKPOINTS, DELETIONS, TERMINAL_STATES, Deletion
from determined.store.series.writer import SeriesKey, SeriesWriter
from determined.store.write.ingest import set_checkpoint_files

EVERYTHING = ("**/*",)
_WITH_FILES = "experiment_id=? AND (state<>'DELETED' OR resources<>'{}')"
_TABLES_OF_TRIALS = ("cut", "journal", "run", "sample", "summary", "task_using")
_OVER = ",".join("?" * len(TERMINAL_STATES))


class Deletions:
    """Deletions of checkpoint files, within a transaction of the writer.

    From `begin` on, the checkpoint counts as deleted (or incomplete), whatever files it still has;
    `end` or `fail` record the outcome.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def begin(self, uuid: str, globs: Sequence[str] = EVERYTHING, state: str = "DELETED") -> None:
        """Record that files will be deleted, and the checkpoint's new state; may be repeated."""
        found = CHECKPOINTS.find(self._connection, "uuid=?", uuid)
        if found is None:
            return
        set_checkpoint_files(self._connection, uuid, state, found.resources)
        self._connection.execute("DELETE FROM deletion WHERE uuid=?", (uuid,))
        DELETIONS.insert(self._connection, {"uuid": uuid, "globs": list(globs), "failure": ""})

    def due(
        self, limit: int, failed_before: Iterable[str] = ()
    ) -> list[tuple[Deletion, str | None]]:
        """Pending deletions with their storage (JSON); skips `failed_before`.

        The storage is None if it is unknown, or if the files are another home's.
        """
        skipped = list(failed_before)
        rows = self._connection.execute(
            "SELECT c.storage, json_extract(e.config, '$.checkpoint_storage'), c.is_foreign, "
            f"{DELETIONS.columns} FROM deletion JOIN checkpoint c ON c.uuid=deletion.uuid "
            "LEFT JOIN experiment e ON e.id=c.experiment_id WHERE failure='' "
            f"OR deletion.uuid NOT IN ({','.join('?' * len(skipped))}) "
            "ORDER BY deletion.rowid LIMIT ?",
            (*skipped, limit),
        )
        return [
            (
                DELETIONS.record(tuple(row)),
                None if is_foreign else default if own == "{}" else own,
            )
            for own, default, is_foreign, *row in rows
        ]

    def end(self, uuid: str, left: dict[str, int]) -> None:
        """Record which files a checkpoint has left; with fewer than before it is incomplete."""
        self._connection.execute("DELETE FROM deletion WHERE uuid=?", (uuid,))
        found = CHECKPOINTS.find(self._connection, "uuid=?", uuid)
        if found is None:
            return
        state = found.state
        if not left:
            state = "DELETED"
        elif left != found.resources:
            state = "PARTIALLY_DELETED"
        set_checkpoint_files(self._connection, uuid, state, left)

    def fail(self, uuid: str, failure: str) -> None:
        """Record why files could not be deleted."""
        DELETIONS.update(self._connection, "uuid=?", [uuid], {"failure": failure})

    def of_experiment(self, experiment_id: int) -> list[Deletion]:
        """The pending and failed deletions of an experiment."""
        return DELETIONS.select(
            self._connection,
            "JOIN checkpoint c ON c.uuid=deletion.uuid WHERE c.experiment_id=?",
            experiment_id,
        )

    def uuids_of(self, experiment_id: int) -> list[str]:
        """The checkpoints of an experiment that may have files."""
        query = f"SELECT uuid FROM checkpoint WHERE {_WITH_FILES}"
        return [uuid for (uuid,) in self._connection.execute(query, (experiment_id,))]

    def begin_all(self, experiment_id: int) -> None:
        """Record that all checkpoints of an experiment will be deleted, but for those of forks."""
        globs = json.dumps(EVERYTHING)
        kept = list(pinned(self._connection, experiment_id))
        others = f"uuid NOT IN ({','.join('?' * len(kept))})"
        self._connection.execute(
            "INSERT OR REPLACE INTO deletion(uuid, globs, failure) "
            f"SELECT uuid, ?, '' FROM checkpoint WHERE {_WITH_FILES} AND {others}",
            (globs, experiment_id, *kept),
        )
        self._connection.execute(
            f"UPDATE checkpoint SET state='DELETED' WHERE experiment_id=? AND {others}",
            (experiment_id, *kept),
        )
        count = "SELECT count(*) FROM checkpoint c WHERE c.state<>'DELETED' AND"
        for change in (
            f"UPDATE trial SET checkpoint_count=({count} c.trial_id=trial.id) "
            "WHERE experiment_id=?",
            f"UPDATE experiment SET checkpoint_count=({count} c.experiment_id=experiment.id) "
            "WHERE id=?",
        ):
            self._connection.execute(change, (experiment_id,))

    def begin_before(self, trial_id: int, steps: int) -> None:
        """Record that the checkpoints of a trial before a step will be deleted."""
        rows = self._connection.execute(
            "SELECT uuid FROM checkpoint WHERE trial_id=? AND steps_completed<? "
            "AND state<>'DELETED'",
            (trial_id, steps),
        ).fetchall()
        for (uuid,) in rows:
            self.begin(uuid)

    def in_use(self, uuids: Iterable[str], outside: int | None = None) -> dict[str, str]:
        """Return which of these checkpoints must stay, and why.

        Args:
            uuids: which checkpoints.
            outside: consider only uses outside this experiment, which is deleted with them.
        """
        wanted = set(uuids)
        found: dict[str, str] = {}
        for uuid, trial_id in self._needed_by_trials(outside):
            if uuid in wanted:
                found[uuid] = f"trial {trial_id} resumes from it"
        if outside is None:  # an experiment that is deleted keeps what its forks need
            for uuid, trial_id in bases(self._connection).items():
                if uuid in wanted:
                    found[uuid] = f"trial {trial_id} is a fork that starts from it"
        versions = self._connection.execute(
            "SELECT v.checkpoint_uuid, m.name, v.number FROM model_version v "
            "JOIN model m ON m.id=v.model_id"
        )
        for uuid, name, number in versions:
            if uuid in wanted:
                found[uuid] = f"it is version {number} of the model {name!r}"
        if outside is None:
            found.update(dict.fromkeys(wanted & self._foreign(), "its files are another home's"))
        return found

    def _foreign(self) -> set[str]:
        query = "SELECT uuid FROM checkpoint WHERE is_foreign"
        return {uuid for (uuid,) in self._connection.execute(query)}

    def _needed_by_trials(self, outside: int | None) -> list[tuple[str, int]]:
        """Checkpoints that unfinished trials start from or would resume from."""
        return self._connection.execute(
            "SELECT warm_start_checkpoint, id FROM trial WHERE warm_start_checkpoint IS NOT NULL "
            f"AND state NOT IN ({_OVER}) AND experiment_id IS NOT ? "
            "UNION SELECT (SELECT c.uuid FROM checkpoint c WHERE c.trial_id=t.id "
            "AND c.state='COMPLETED' ORDER BY c.steps_completed DESC, c.report_time DESC LIMIT 1), "
            f"t.id FROM trial t WHERE t.state NOT IN ({_OVER}) AND t.experiment_id IS NOT ?",
            (*TERMINAL_STATES, outside, *TERMINAL_STATES, outside),
        ).fetchall()


def keep_shared(
    connection: sqlite3.Connection, experiment_id: int, needed: Mapping[int, int]
) -> None:
    """Delete what trials did after the steps that forks need, and all else that belongs to them."""
    writer = SeriesWriter(connection)
    for trial_id, steps in needed.items():
        _keep_points(connection, writer, trial_id, steps)
        connection.execute(
            "DELETE FROM report WHERE trial_id=? AND (steps>? OR archived)", (trial_id, steps)
        )
        for table in _TABLES_OF_TRIALS:
            connection.execute(f"DELETE FROM {table} WHERE trial_id=?", (trial_id,))
    writer.flush()
    for change in (
        "DELETE FROM search_step WHERE experiment_id=?",
        "DELETE FROM event WHERE experiment_id=?",
        "DELETE FROM checkpoint WHERE experiment_id=? AND state='DELETED'",
        "UPDATE experiment SET searcher_state=NULL, best_validation=NULL, best_trial_id=NULL "
        "WHERE id=?",
    ):
        connection.execute(change, (experiment_id,))


def _keep_points(
    connection: sqlite3.Connection, writer: SeriesWriter, trial_id: int, steps: int
) -> None:
    """Write the points of a trial again, up to a step."""
    from determined.store.series.points import join_points, unpack_chunk, unpack_points

    found = connection.execute(
        "SELECT s.id, s.grp, s.name, s.per_batch, s.run_id, c.steps FROM series s "
        "LEFT JOIN cut c ON c.trial_id=s.trial_id AND c.run_id=s.run_id AND c.grp=s.grp "
        "AND c.per_batch=s.per_batch WHERE s.trial_id=?",
        (trial_id,),
    ).fetchall()
    for series_id, group, name, per_batch, run_id, cut in found:
        read = "SELECT data FROM {} WHERE series_id=? ORDER BY number"
        chunks = connection.execute(read.format("chunk"), (series_id,)).fetchall()
        tail = connection.execute(read.format("tail"), (series_id,)).fetchall()
        parts = [unpack_chunk(data) for (data,) in chunks]
        points = join_points(parts + [unpack_points(data) for (data,) in tail])
        points = points.where(points.steps <= (steps if cut is None else min(steps, cut)))
        connection.execute("DELETE FROM series WHERE id=?", (series_id,))
        key = SeriesKey(trial_id, group, name, bool(per_batch), run_id)
        rows = zip(
            points.steps.tolist(), points.times.tolist(), points.values.tolist(), strict=True
        )
        for step, time, value in rows:
            writer.add_column(key, array("q", [step]), time, array("d", [value]))
