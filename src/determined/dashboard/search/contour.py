"""A search over two hyperparameters as a table of cells: the best result in each. Pure."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

_RANGES = ("int", "double", "log", "log_int")


class ContourJson(TypedDict):
    """Cells in rows of y and columns of x; edges of ranges, or categories."""

    x: list[Any]
    y: list[Any]
    x_is_range: bool
    y_is_range: bool
    z: list[list[float | None]]
    count: list[list[int]]


@dataclass(frozen=True)
class Column:
    """The values of a hyperparameter, and the type of its range in the configuration."""

    values: Sequence[Any]
    kind: str = "const"


def contour(
    x_column: Column,
    y_column: Column,
    values: Sequence[float | None],
    bins: int,
    smaller_is_better: bool,
) -> ContourJson:
    """The best value and the number of trials in each cell."""
    x_axis, y_axis = _Axis(x_column, bins), _Axis(y_column, bins)
    best: list[list[float | None]] = [[None] * x_axis.size for _ in range(y_axis.size)]
    count = [[0] * x_axis.size for _ in range(y_axis.size)]
    for x, y, value in zip(x_column.values, y_column.values, values, strict=True):
        if value is None or not math.isfinite(value):
            continue
        column, row = x_axis.place(x), y_axis.place(y)
        if column is None or row is None:
            continue
        count[row][column] += 1
        known = best[row][column]
        if known is None or (value < known) == smaller_is_better:
            best[row][column] = value
    return {
        "x": x_axis.labels,
        "y": y_axis.labels,
        "x_is_range": x_axis.is_range,
        "y_is_range": y_axis.is_range,
        "z": best,
        "count": count,
    }


class _Axis:
    """Assigns the values of one hyperparameter to cells."""

    def __init__(self, column: Column, bins: int) -> None:
        plain = (v for v in column.values if v is not None and not isinstance(v, (list, dict)))
        known = list(dict.fromkeys(plain))
        numbers = [v for v in known if type(v) in (int, float) and math.isfinite(v)]
        is_numeric = len(numbers) == len(known) > 1
        self.is_range = is_numeric and (column.kind in _RANGES or len(known) > bins)
        if not self.is_range:
            order = sorted(known) if len(numbers) == len(known) else sorted(known, key=str)
            self.labels: list[Any] = order
            self._places = {(type(v), v): number for number, v in enumerate(order)}
            self.size = len(order)
            return
        low, high = min(numbers), max(numbers)
        is_wide = column.kind not in _RANGES and low > 0 and high / low > 1000
        is_log = low > 0 and (column.kind in ("log", "log_int") or is_wide)
        self.labels = _edges(low, high, bins, is_log=is_log)
        self.size = bins

    def place(self, value: Any) -> int | None:
        """The cell of a value, None if it has none."""
        if isinstance(value, (list, dict)):
            return None
        if not self.is_range:
            return self._places.get((type(value), value))
        if type(value) not in (int, float) or not math.isfinite(value):
            return None
        return min(max(bisect.bisect_right(self.labels, value) - 1, 0), self.size - 1)


def _edges(low: float, high: float, bins: int, *, is_log: bool) -> list[float]:
    """Edges of cells of equal width, or of equal ratio."""
    if is_log:
        ratio = high / low
        return [low * ratio ** (n / bins) for n in range(bins)] + [high]
    return [low + (high - low) * n / bins for n in range(bins)] + [high]
