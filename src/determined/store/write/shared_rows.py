"""Reduce a deleted trial to the rows that its forks share."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Mapping

from determined.store.series.writer import SeriesKey, SeriesWriter

_OF_TRIALS = ("cut", "journal", "run", "sample", "summary", "task_using")


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
        for table in _OF_TRIALS:
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
