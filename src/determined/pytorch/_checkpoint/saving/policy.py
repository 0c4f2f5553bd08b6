"""Whether a validation is worth a checkpoint."""

from __future__ import annotations

import logging
from typing import Any

from determined.pytorch._plan import FitPlan
from determined.util import is_numerical_scalar

logger = logging.getLogger("determined.pytorch")


class CheckpointPolicy:
    """What `fit(checkpoint_policy=..., metric=...)` asks for. The chief alone knows the metrics."""

    def __init__(self, plan: FitPlan) -> None:
        self._plan = plan
        self._has_warned = False

    def asks_for(self, metrics: dict[str, Any], is_best: bool) -> bool:
        """Say whether to save a checkpoint of this validation."""
        if not self._compares:
            return self._plan.checkpoint_policy == "all"
        return is_best or not self.has_metric(metrics)

    def has_metric(self, metrics: dict[str, Any]) -> bool:
        """Say whether the metric to compare is there; raise if it is `fit` that asked for it."""
        value = metrics.get(self._plan.metric or "")
        if not self._compares or is_numerical_scalar(value):
            return True
        problem = (
            f"checkpoint_policy='best' compares the validation metric {self._plan.metric!r}, which "
            f"must be one number, got {value!r}. The metrics are {sorted(metrics, key=str)}."
        )
        if not self._plan.is_metric_configured:
            raise RuntimeError(problem)
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                f"{problem} It comes from searcher.metric of `exp_conf`. Until that names one of "
                "them, each validation saves a checkpoint."
            )
        return False

    @property
    def _compares(self) -> bool:
        return self._plan.checkpoint_policy == "best" and not self._plan.test_mode
