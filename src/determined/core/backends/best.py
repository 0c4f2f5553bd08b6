"""Which validation is the best so far: decided here, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from determined.util import is_numerical_scalar


class Best:
    """The best value so far of the validation metric that decides, if one does."""

    def __init__(
        self, metric: str | None = None, smaller_is_better: bool = True, value: float | None = None
    ) -> None:
        self.metric = metric
        self._smaller_is_better = smaller_is_better
        self.value = value

    def or_better(self, other: Any) -> float | None:
        """Return the value, or another one that is better."""
        return float(other) if self._is_beaten_by(other, self.value) else self.value

    def is_beaten_by(self, metrics: Mapping[str, Any]) -> bool:
        """Say whether a validation is better than the value."""
        return self._is_beaten_by(self._of(metrics), self.value)

    def note(self, metrics: Mapping[str, Any]) -> None:
        """Take the metrics of a validation into account."""
        self.value = self.or_better(self._of(metrics))

    def _of(self, metrics: Mapping[str, Any]) -> Any:
        return None if self.metric is None else metrics.get(self.metric)

    def _is_beaten_by(self, value: Any, best: float | None) -> bool:
        if not is_numerical_scalar(value) or math.isnan(value):
            return False
        if best is None:
            return True
        return float(value) < best if self._smaller_is_better else float(value) > best
