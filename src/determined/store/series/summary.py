"""The summary of one metric: the last value and, for numbers, their statistics."""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Summary:
    """Statistics of one metric; those of numbers are None for every other type.

    NaN counts as a number: it propagates to `sum` and `mean`, while `min` and `max` ignore it.
    """

    type: str
    last: Any
    count: int | None = None
    sum: float | None = None
    min: float | None = None
    max: float | None = None

    @property
    def mean(self) -> float | None:
        """The mean of all numbers, None for other types."""
        return None if self.sum is None or not self.count else self.sum / self.count

    @classmethod
    def of(cls, value: Any) -> Summary:
        """The summary of a first value."""
        kind = type_of(value)
        if kind != "number":
            return cls(kind, value)
        return cls(kind, value, 1, value, value, value)

    def with_values(self, values: Sequence[Any]) -> Summary:
        """The summary with more values added, in order."""
        if self.count is None or self.sum is None or set(map(type, values)) != {float}:
            return functools.reduce(Summary.with_value, values, self)
        total = sum(values)
        if math.isnan(total):
            return functools.reduce(Summary.with_value, values, self)
        return Summary(
            self.type,
            values[-1],
            self.count + len(values),
            self.sum + total,
            _pick(min, self.min, min(values)),
            _pick(max, self.max, max(values)),
        )

    def with_value(self, value: Any) -> Summary:
        """The summary with one more value; a value of a different type makes it a string."""
        if type_of(value) != self.type:
            return Summary("string", value)
        if self.count is None or self.sum is None:
            return replace(self, last=value)
        return Summary(
            self.type,
            value,
            self.count + 1,
            self.sum + value,
            _pick(min, self.min, value),
            _pick(max, self.max, value),
        )


def type_of(value: Any) -> str:
    """How the summary names the type of a reported value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float) or (isinstance(value, int) and value in _INT64):
        return "number"
    if isinstance(value, str):
        return "date" if _is_date(value) else "string"
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else "string"


def better(values: Iterable[tuple[int, Any]], smaller_is_better: bool) -> tuple[float, int] | None:
    """The best number and its step; the first of equals, without NaN and other types."""
    best: tuple[float, int] | None = None
    for steps, value in values:
        if type_of(value) != "number" or math.isnan(value):
            continue
        if best is None or (value < best[0] if smaller_is_better else value > best[0]):
            best = (float(value), steps)
    return best


def _pick(choose: Any, old: float | None, new: float) -> float:
    if old is None or math.isnan(old):
        return new
    return old if math.isnan(new) else choose(old, new)


def _is_date(text: str) -> bool:
    if len(text) < 10 or text[4:5] != "-" or text[7:8] != "-":
        return False
    try:
        datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return False
    return True
