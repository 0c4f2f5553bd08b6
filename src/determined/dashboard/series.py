"""Curves as bytes: a JSON header, then columns of numbers that a browser reads without parsing.

    4 bytes    length of the header, little-endian
    header     JSON, padded with spaces so that the columns begin at a multiple of 8
    columns    float64 (`f8`) or float32 (`f4`), each beginning at a multiple of 8

A small number of points is sent exactly, as `x` and `y`. More are sent as bands: per bucket the
minimum, maximum, mean, last value and count, so that no extreme is lost. Values for drawing use
float32 if that moves no point by more than a ten-thousandth of the curve's height.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from determined.store import Curve

if TYPE_CHECKING:
    import numpy as np

MOST_BYTES = 440_000
_BUCKET_BYTES = 32
_FEWEST_PIXELS = 24
_ALIGNMENT = 8
_PRECISION = 1e-4


def fitting_pixels(pixels: int, num_curves: int) -> int:
    """How many buckets each curve may have so that the answer stays small."""
    share = MOST_BYTES // (_BUCKET_BYTES * max(1, num_curves))
    return max(_FEWEST_PIXELS, min(pixels, share))


def pack(keys: list[str], curves: list[Curve], x: str, smoothing: float) -> bytes:
    """Turn curves into an answer."""
    series: list[dict[str, Any]] = []
    parts: list[bytes] = []
    offset = 0
    for key, curve in zip(keys, curves, strict=True):
        columns = []
        for name, kind, data in _columns(curve, smoothing):
            columns.append({"name": name, "type": kind, "offset": offset})
            padded = data + bytes(-len(data) % _ALIGNMENT)
            parts.append(padded)
            offset += len(padded)
        series.append(
            {
                "key": key,
                "kind": "points" if curve.is_exact else "bands",
                "n": len(curve.x),
                "total": curve.num_points,
                "columns": columns,
            }
        )
    total = sum(curve.num_points for curve in curves)
    head = {"x": x, "total_points": total, "smooth": smoothing, "series": series}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 4) % _ALIGNMENT)
    return b"".join((struct.pack("<I", len(text)), text, *parts))


def _columns(curve: Curve, smoothing: float) -> list[tuple[str, str, bytes]]:
    import numpy as np

    if curve.is_exact:
        found = [("x", "f8", curve.x), ("y", "f8", curve.lasts)]
    else:
        middle = (np.asarray(curve.x, "f8") + np.asarray(curve.x_last, "f8")) / 2
        bands = (
            ("min", curve.mins),
            ("max", curve.maxs),
            ("mean", curve.means),
            ("last", curve.lasts),
        )
        kind = "f4" if _is_fine_in_float32(curve.mins, curve.maxs) else "f8"
        found = [("x", "f8", middle), *((name, kind, values) for name, values in bands)]
        found.append(("count", "f4", curve.counts))
    if smoothing > 0:
        smooth = smoothed(curve.means, curve.counts - curve.nans, smoothing)
        found.append(("smooth", "f8" if curve.is_exact else kind, smooth))
    return [(name, kind, np.asarray(values, f"<{kind}").tobytes()) for name, kind, values in found]


def _is_fine_in_float32(mins: np.ndarray, maxs: np.ndarray) -> bool:
    import numpy as np

    low, high = mins[np.isfinite(mins)], maxs[np.isfinite(maxs)]
    if not len(low) or not len(high):
        return True
    largest = max(abs(float(low.min())), abs(float(high.max())))
    height = float(high.max()) - float(low.min())
    return largest < 1e38 and largest * 2**-24 <= height * _PRECISION


def smoothed(means: np.ndarray, counts: np.ndarray, smoothing: float) -> np.ndarray:
    """The exponential moving average over all points, with bias correction.

    A bucket represents its points: their mean is weighted by their number. NaN is skipped.
    """
    import numpy as np

    result = np.full(len(means), np.nan)
    kept = weight = 0.0
    decays = np.power(smoothing, counts)
    rows = zip(means.tolist(), counts.tolist(), decays.tolist(), strict=True)
    for number, (mean, count, decay) in enumerate(rows):
        if count > 0 and mean - mean == 0:  # neither NaN nor infinite
            kept = decay * kept + (1 - decay) * mean
            weight = decay * weight + (1 - decay)
        if weight > 0:
            result[number] = kept / weight
    return result
