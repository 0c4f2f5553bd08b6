"""Curves for charts: one bucket per pixel, or exact points if few enough are visible."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from determined.store._forks import spans
from determined.store.series.points import (
    FACTOR,
    LEVELS,
    Buckets,
    Points,
    join_buckets,
    join_points,
    merge,
    singles,
    unpack_buckets,
    unpack_chunk,
    unpack_points,
)

if TYPE_CHECKING:
    import numpy as np


_ENOUGH = 0.75  # of a bucket per pixel: better a level with few less than 16 times as many


class CurveKey(NamedTuple):
    """One metric of one trial, over all its runs: as reported, or per batch."""

    trial_id: int
    group: str
    name: str
    per_batch: bool = False


@dataclass(frozen=True)
class Curve:
    """Columns of equal length, one entry per bucket; with `is_exact` a bucket is one point.

    `x` and `x_last` are where a bucket begins and ends. NaN is counted but left out of a bucket's
    statistics; the statistics of a bucket with nothing but NaN are NaN.
    """

    key: CurveKey
    is_exact: bool
    num_points: int
    x: np.ndarray
    x_last: np.ndarray
    mins: np.ndarray
    maxs: np.ndarray
    means: np.ndarray
    lasts: np.ndarray
    counts: np.ndarray
    nans: np.ndarray


class _Bounds(NamedTuple):
    """The visible part of a run's series: steps up to a cut, and a range of steps or times.

    Of a fork's own series, only steps `after` the one where it left its parent.
    """

    by_time: bool
    low: float
    high: float
    cut: float
    after: float = -math.inf

    @property
    def is_everything(self) -> bool:
        return self[1:] == (-math.inf, math.inf, math.inf, -math.inf)


class _Chunks(NamedTuple):
    """The visible chunks of a run: about how many points, those fully visible, and partly."""

    num_points: float
    whole: list[int]
    cut: list[int]


def read_curve(
    connection: sqlite3.Connection,
    key: CurveKey,
    x: str | tuple[str, str] = "steps",
    low: float | None = None,
    high: float | None = None,
    pixels: int = 2000,
) -> Curve:
    """Read one curve; see `Reader.curves`."""
    import numpy as np

    origin = _origin(connection, key.trial_id) if x == "relative" else 0.0
    is_metric = x not in ("steps", "time", "relative")
    begin = -np.inf if low is None or is_metric else low + origin
    end = np.inf if high is None or is_metric else high + origin
    buckets = _read(connection, key, x in ("time", "relative"), begin, end, pixels)
    if is_metric:
        first = last = _values_at(connection, key, x, buckets.last_steps, pixels)
        seen = np.isfinite(first)
        seen &= (first >= (-np.inf if low is None else low)) & (
            first <= (np.inf if high is None else high)
        )
        order = np.flatnonzero(seen)[np.argsort(first[seen], kind="stable")]
        buckets, first, last = buckets.where(order), first[order], last[order]
    elif x == "steps":
        first, last = buckets.first_steps, buckets.last_steps
    else:
        first, last = buckets.first_times - origin, buckets.last_times - origin
    return _fit(key, buckets, first, last, pixels)


def _fit(
    key: CurveKey, buckets: Buckets, first: np.ndarray, last: np.ndarray, pixels: int
) -> Curve:
    """Merge neighboring buckets until there is about one per pixel."""
    import numpy as np

    total = int(buckets.counts.sum())
    if len(first) > pixels:
        width = float(last.max()) - float(first[0]) or 1.0
        place = ((first - first[0]) * (pixels / width)).astype("i8").clip(0, pixels - 1)
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        buckets = merge(buckets, starts)
        first, last = first[starts], np.maximum.reduceat(last, starts)
    return Curve(
        key,
        bool((buckets.counts == 1).all()),
        total,
        first,
        last,
        buckets.mins,
        buckets.maxs,
        buckets.means,
        buckets.lasts,
        buckets.counts,
        buckets.nans,
    )


def _read(
    connection: sqlite3.Connection,
    key: CurveKey,
    by_time: bool,
    low: float,
    high: float,
    pixels: int,
) -> Buckets:
    seen = []
    for span in spans(connection, key.trial_id):
        runs = connection.execute(
            "SELECT s.id, c.steps FROM series s LEFT JOIN cut c ON c.trial_id=s.trial_id "
            "AND c.run_id=s.run_id AND c.grp=s.grp AND c.per_batch=s.per_batch "
            "WHERE s.trial_id=? AND s.grp=? AND s.name=? AND s.per_batch=? ORDER BY s.run_id",
            key._replace(trial_id=span.trial_id),
        ).fetchall()
        for series_id, cut in runs:
            upto = span.upto if cut is None else min(cut, span.upto)
            seen.append((series_id, _Bounds(by_time, low, high, upto, span.after)))
    chunks = {series_id: _chunks(connection, series_id, bounds) for series_id, bounds in seen}
    total = sum(found.num_points for found in chunks.values())
    level = max((n for n in LEVELS if total / FACTOR**n >= _ENOUGH * pixels), default=0)
    parts = [_series(connection, s, bounds, chunks[s], level) for s, bounds in seen]
    return join_buckets(parts) if parts else singles(join_points([]))


def _chunks(connection: sqlite3.Connection, series_id: int, bounds: _Bounds) -> _Chunks:
    if bounds.is_everything:
        count, total = connection.execute(
            "SELECT count(*), total(count) FROM chunk WHERE series_id=?", (series_id,)
        ).fetchone()
        return _Chunks(total, list(range(count)), [])
    axis = "time" if bounds.by_time else "step"
    rows = connection.execute(
        f"SELECT number, count, first_{axis}, last_{axis}, first_step, last_step FROM chunk "
        f"WHERE series_id=? AND last_{axis}>=? AND first_{axis}<=? AND first_step<=? "
        "AND last_step>? ORDER BY number",
        (series_id, *bounds[1:]),
    )
    num_points = 0.0
    whole: list[int] = []
    cut: list[int] = []
    for number, count, first, last, first_step, last_step in rows:
        is_whole = first >= bounds.low and last <= bounds.high
        is_whole = is_whole and bounds.after < first_step and last_step <= bounds.cut
        (whole if is_whole else cut).append(number)
        seen = min(last, bounds.high) - max(first, bounds.low)
        num_points += count if is_whole or last == first else count * seen / (last - first)
    return _Chunks(num_points, whole, cut)


def _series(
    connection: sqlite3.Connection,
    series_id: int,
    bounds: _Bounds,
    chunks: _Chunks,
    level: int,
) -> Buckets:
    """The buckets of one run: full chunks from the pyramid, the ends and the tail from points."""
    whole, exact = chunks.whole, chunks.cut
    if not level:
        whole, exact = [], sorted(whole + exact)
    parts = [
        _coarse(_seen(unpack_chunk(data), bounds), level)
        for number in exact
        for (data,) in connection.execute(
            "SELECT data FROM chunk WHERE series_id=? AND number=?", (series_id, number)
        )
    ]
    tail = connection.execute(
        "SELECT data FROM tail WHERE series_id=? ORDER BY number", (series_id,)
    )
    points = [_seen(unpack_points(data), bounds) for (data,) in tail]
    parts.append(_coarse(join_points(points), level))
    if whole:
        rows = connection.execute(
            "SELECT data FROM pyramid WHERE series_id=? AND level=? AND number BETWEEN ? AND ?",
            (series_id, level, whole[0], whole[-1]),
        ).fetchall()
        wanted = set(whole)
        parts.append(
            unpack_buckets([d for n, (d,) in enumerate(rows, start=whole[0]) if n in wanted])
        )
    return join_buckets(parts)


def _coarse(points: Points, level: int) -> Buckets:
    """Put points into buckets as large as those of a level, so later steps stay cheap."""
    import numpy as np

    buckets = singles(points)
    if not level:
        return buckets
    return merge(buckets, np.arange(0, len(buckets.counts), FACTOR**level))


def _seen(points: Points, bounds: _Bounds) -> Points:
    axis = points.times if bounds.by_time else points.steps
    mask = (axis >= bounds.low) & (axis <= bounds.high)
    mask &= (points.steps <= bounds.cut) & (points.steps > bounds.after)
    return points if mask.all() else points.where(mask)


def _values_at(
    connection: sqlite3.Connection,
    key: CurveKey,
    x: str | tuple[str, str],
    steps: np.ndarray,
    pixels: int,
) -> np.ndarray:
    """The values of another metric of the trial at `steps`, interpolated between reports."""
    import numpy as np

    group, name = (key.group, x) if isinstance(x, str) else x
    for per_batch in (key.per_batch, not key.per_batch):
        other = CurveKey(key.trial_id, group, name, per_batch)
        found = _read(connection, other, False, -np.inf, np.inf, 4 * pixels)
        known = np.isfinite(found.lasts)
        if known.any():
            values = np.interp(
                steps, found.last_steps[known], found.lasts[known], left=np.nan, right=np.nan
            )
            return np.asarray(values)
    return np.full(len(steps), np.nan)


def _origin(connection: sqlite3.Connection, trial_id: int) -> float:
    """When a trial began; a fork when the first of its ancestors did, whose curve it continues."""
    trial_id = spans(connection, trial_id)[0].trial_id
    row = connection.execute(
        "SELECT coalesce(started, created) FROM trial WHERE id=?", (trial_id,)
    ).fetchone()
    return float(row[0]) if row else 0.0
