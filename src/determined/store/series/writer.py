"""Write points to the store: a tail per series, sealed into chunks with a pyramid."""

from __future__ import annotations

import sqlite3
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from determined.store.series.points import Points

_CHUNK_POINTS = 4096  # as in `_points`, which needs numpy only once a chunk is full
_MAX_TAIL_ROWS = 64


class SeriesKey(NamedTuple):
    """One curve of one run."""

    trial_id: int
    group: str
    name: str
    per_batch: bool
    run_id: int


@dataclass
class _Pending:
    steps: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))


@dataclass
class _Tail:
    series_id: int
    rows: int
    points: int
    next_row: int
    next_chunk: int


class SeriesWriter:
    """Collects the points of one transaction and writes them with few statements."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._pending: dict[SeriesKey, _Pending] = {}
        self._tails: dict[SeriesKey, _Tail] = {}

    def add(self, key: SeriesKey, step: int, time: float, value: float) -> None:
        """Add one point."""
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending()
        pending.steps.append(step)
        pending.times.append(time)
        pending.values.append(value)

    def add_column(
        self, key: SeriesKey, steps: array[int], time: float, values: array[float] | array[int]
    ) -> None:
        """Add one point for each value."""
        pending = self._pending.setdefault(key, _Pending())
        pending.steps += steps
        pending.times += array("d", [time]) * len(values)
        pending.values += array("d", values)

    def flush(self) -> None:
        """Write what was added; call this before the commit."""
        for key, pending in self._pending.items():
            self._write(self._tail(key), pending)
        self._pending.clear()

    def forget(self) -> None:
        """Drop the cache of the tables: a transaction failed, or the cache grew too large."""
        self._pending.clear()
        self._tails.clear()

    @property
    def num_remembered(self) -> int:
        """The number of series cached between transactions."""
        return len(self._tails)

    def _tail(self, key: SeriesKey) -> _Tail:
        tail = self._tails.get(key)
        if tail is None:
            tail = self._tails[key] = self._load_tail(key)
        return tail

    def _load_tail(self, key: SeriesKey) -> _Tail:
        execute = self._connection.execute
        found = execute(
            "SELECT id FROM series WHERE trial_id=? AND grp=? AND name=? AND per_batch=? "
            "AND run_id=?",
            key,
        ).fetchone()
        if found is None:
            sql = "INSERT INTO series(trial_id, grp, name, per_batch, run_id) VALUES (?,?,?,?,?)"
            return _Tail(int(execute(sql, key).lastrowid or 0), 0, 0, 0, 0)
        (series_id,) = found
        rows, points, last = execute(
            "SELECT count(*), coalesce(sum(count), 0), coalesce(max(number), -1) FROM tail "
            "WHERE series_id=?",
            (series_id,),
        ).fetchone()
        (chunks,) = execute("SELECT count(*) FROM chunk WHERE series_id=?", (series_id,)).fetchone()
        return _Tail(series_id, rows, points, last + 1, chunks)

    def _write(self, tail: _Tail, pending: _Pending) -> None:
        count = len(pending.steps)
        data = pending.steps.tobytes() + pending.times.tobytes() + pending.values.tobytes()
        if tail.points + count >= _CHUNK_POINTS or tail.rows >= _MAX_TAIL_ROWS:
            self._seal(tail, data)
        else:
            self._append(tail, count, data)

    def _append(self, tail: _Tail, count: int, data: bytes) -> None:
        self._connection.execute(
            "INSERT INTO tail VALUES (?,?,?,?)", (tail.series_id, tail.next_row, count, data)
        )
        tail.rows += 1
        tail.points += count
        tail.next_row += 1

    def _seal(self, tail: _Tail, data: bytes) -> None:
        """Make full chunks of the tail and `data`; the rest becomes one row of the tail."""
        from determined.store.series.points import Points, join_points, pack_points, unpack_points

        execute = self._connection.execute
        old = execute("SELECT data FROM tail WHERE series_id=? ORDER BY number", (tail.series_id,))
        parts = [unpack_points(row) for (row,) in old] + [unpack_points(data)]
        points = join_points(parts)
        execute("DELETE FROM tail WHERE series_id=?", (tail.series_id,))
        tail.rows = tail.points = 0
        whole = len(points.steps) // _CHUNK_POINTS * _CHUNK_POINTS
        for start in range(0, whole, _CHUNK_POINTS):
            end = start + _CHUNK_POINTS
            self._add_chunk(tail, Points(*(column[start:end] for column in points)))
        rest = Points(*(column[whole:] for column in points))
        if len(rest.steps):
            self._append(tail, len(rest.steps), pack_points(rest))

    def _add_chunk(self, tail: _Tail, points: Points) -> None:
        from determined.store.series.points import pack_buckets, pack_chunk, pyramid

        bounds = (points.steps.min(), points.steps.max(), points.times.min(), points.times.max())
        self._connection.execute(
            "INSERT INTO chunk VALUES (?,?,?,?,?,?,?,?)",
            (
                tail.series_id,
                tail.next_chunk,
                len(points.steps),
                *(bound.item() for bound in bounds),
                pack_chunk(points),
            ),
        )
        self._connection.executemany(
            "INSERT INTO pyramid VALUES (?,?,?,?)",
            [
                (tail.series_id, level, tail.next_chunk, pack_buckets(buckets))
                for level, buckets in pyramid(points).items()
            ],
        )
        tail.next_chunk += 1
