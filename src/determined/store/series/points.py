"""Points of a curve and the pyramid above them: pure functions over numpy arrays.

A chunk holds 4,096 points. Level 1 of its pyramid has one bucket for 16 of them, level 2 for 256,
level 3 for all; a bucket keeps minimum and maximum, so no spike is lost at any zoom.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

CHUNK_POINTS = 4096
FACTOR = 16
LEVELS = (1, 2, 3)


class Points(NamedTuple):
    """Columns of equal length: 8-byte integers, then floats."""

    steps: np.ndarray
    times: np.ndarray
    values: np.ndarray

    def where(self, mask: np.ndarray) -> Points:
        """The points where `mask` is true."""
        return Points(self.steps[mask], self.times[mask], self.values[mask])


class Buckets(NamedTuple):
    """Columns of equal length; `nans` of the `counts` points were NaN and are in no statistic."""

    first_steps: np.ndarray
    last_steps: np.ndarray
    first_times: np.ndarray
    last_times: np.ndarray
    mins: np.ndarray
    maxs: np.ndarray
    means: np.ndarray
    lasts: np.ndarray
    counts: np.ndarray
    nans: np.ndarray

    def where(self, mask: np.ndarray) -> Buckets:
        """The buckets where `mask` is true."""
        return Buckets(*(column[mask] for column in self))


def pack_points(points: Points) -> bytes:
    """The columns as bytes, one after the other."""
    return b"".join(column.tobytes() for column in points)


def unpack_points(data: bytes) -> Points:
    """The inverse of `pack_points`."""
    import numpy as np

    count = len(data) // 24
    return Points(
        np.frombuffer(data, "<i8", count),
        np.frombuffer(data, "<f8", count, 8 * count),
        np.frombuffer(data, "<f8", count, 16 * count),
    )


def pack_chunk(points: Points) -> bytes:
    """The points of a chunk, compressed: steps and times then take hardly any space."""
    return zlib.compress(pack_points(points), 1)


def unpack_chunk(data: bytes) -> Points:
    """The inverse of `pack_chunk`."""
    return unpack_points(zlib.decompress(data))


def pack_buckets(buckets: Buckets) -> bytes:
    """The buckets as bytes, one after the other, so that rows can be concatenated."""
    import numpy as np

    table = np.empty(len(buckets.counts), _bucket_type())
    for name, column in zip(Buckets._fields, buckets, strict=True):
        table[name] = column
    return table.tobytes()


def unpack_buckets(rows: Iterable[bytes]) -> Buckets:
    """The buckets of many rows, in their order."""
    import numpy as np

    table = np.frombuffer(b"".join(rows), _bucket_type())
    return Buckets(*(table[name] for name in Buckets._fields))


@functools.cache
def _bucket_type() -> np.dtype[np.void]:
    import numpy as np

    whole = {"first_steps", "last_steps", "counts", "nans"}
    return np.dtype([(name, "<i8" if name in whole else "<f8") for name in Buckets._fields])


def join_points(parts: list[Points]) -> Points:
    """All points, in the order of their steps."""
    import numpy as np

    if not parts:
        parts = [Points(np.empty(0, "i8"), np.empty(0), np.empty(0))]
    joined = parts[0] if len(parts) == 1 else Points(*map(np.concatenate, zip(*parts, strict=True)))
    if len(joined.steps) > 1 and (np.diff(joined.steps) < 0).any():
        order = np.argsort(joined.steps, kind="stable")
        joined = Points(*(column[order] for column in joined))
    return joined


def join_buckets(parts: list[Buckets]) -> Buckets:
    """All buckets, in the order of their first steps."""
    import numpy as np

    joined = Buckets(*map(np.concatenate, zip(*parts, strict=True)))
    order = np.argsort(joined.first_steps, kind="stable")
    return Buckets(*(column[order] for column in joined))


def singles(points: Points) -> Buckets:
    """One bucket for each point."""
    import numpy as np

    ones = np.ones(len(points.steps), "i8")
    nans = np.isnan(points.values).astype("i8")
    steps, times, values = points
    return Buckets(steps, steps, times, times, values, values, values, values, ones, nans)


def pyramid(points: Points) -> dict[int, Buckets]:
    """The levels above the points of one chunk."""
    import numpy as np

    level, buckets = {}, singles(points)
    for number in LEVELS:
        buckets = merge(buckets, np.arange(0, len(buckets.counts), FACTOR))
        level[number] = buckets
    return level


def merge(buckets: Buckets, starts: np.ndarray) -> Buckets:
    """Merge neighboring buckets: a merged one begins at each of `starts`."""
    import numpy as np

    if len(starts) == 0:
        return buckets
    ends = np.append(starts[1:], len(buckets.counts)) - 1
    counts = np.add.reduceat(buckets.counts, starts)
    nans = np.add.reduceat(buckets.nans, starts)
    weights = buckets.counts - buckets.nans
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        totals = np.where(weights > 0, buckets.means * weights, 0.0)
        means = np.add.reduceat(totals, starts) / (counts - nans)
    return Buckets(
        np.minimum.reduceat(buckets.first_steps, starts),
        np.maximum.reduceat(buckets.last_steps, starts),
        np.minimum.reduceat(buckets.first_times, starts),
        np.maximum.reduceat(buckets.last_times, starts),
        np.fmin.reduceat(buckets.mins, starts),
        np.fmax.reduceat(buckets.maxs, starts),
        means,
        buckets.lasts[ends],
        counts,
        nans,
    )
