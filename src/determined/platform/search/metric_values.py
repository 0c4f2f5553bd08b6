"""Read the values that a search decides by from validation metrics."""

from __future__ import annotations

import math
from typing import Any

from determined.platform.search.settings import Settings


class UnreadableMetricError(ValueError):
    """A validation lacks what the search needs; the text is for the user."""


class NotFiniteError(UnreadableMetricError):
    """A metric is NaN or infinite, as of a training that diverges."""


def read_value(settings: Settings, metrics: dict[str, Any], steps: int) -> float:
    """Return the searcher's metric so that smaller is better."""
    value = _number("metric", settings.metric, metrics, steps)
    if not math.isfinite(value):
        raise NotFiniteError(
            f"metric `{settings.metric}` is {value} in the validation at step {steps}, which "
            f"cannot be ranked; {_reported(metrics)}."
        )
    return value if settings.smaller_is_better else -value


def read_time(settings: Settings, metrics: dict[str, Any], steps: int) -> int:
    """Return how long the trial has trained, in units of the time metric."""
    if settings.time_metric == "batches" and metrics.get("batches") is None:
        return steps
    value = _number("time_metric", settings.time_metric, metrics, steps)
    if not math.isfinite(value):
        raise UnreadableMetricError(
            f"time metric `{settings.time_metric}` is {value} in the validation at step {steps}; "
            f"{_reported(metrics)}."
        )
    return int(value)


def _number(key: str, name: str, metrics: dict[str, Any], steps: int) -> float:
    if name not in metrics:
        raise UnreadableMetricError(
            f"there is no `{name}` in the validation at step {steps}; {_reported(metrics)}. Report "
            f"it, or set `searcher.{key}` to one of these."
        )
    value = metrics[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnreadableMetricError(
            f"`{name}` is {value!r} in the validation at step {steps}, not a number; "
            f"{_reported(metrics)}."
        )
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf if value > 0 else -math.inf


def _reported(metrics: dict[str, Any]) -> str:
    if not metrics:
        return "no metrics were reported"
    return "the reported metrics are " + ", ".join(f"`{name}`" for name in sorted(metrics, key=str))
