"""Which of a run's own checkpoints to delete once a new one is saved."""

from __future__ import annotations

import logging

from determined.core import CheckpointContext
from determined.errors import DeterminedError
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._plan import FitPlan
from determined.storage import RetentionPolicy

logger = logging.getLogger("determined.pytorch")

_KEYS = ("save_experiment_best", "save_trial_best", "save_trial_latest")


class Retention:
    """Deletes what no rule keeps; a failed deletion never stops training."""

    def __init__(
        self,
        checkpoint: CheckpointContext,
        policy: RetentionPolicy | None,
        run_id: str,
        started_from: str | None,
        *,
        is_managed: bool = False,
    ) -> None:
        self._checkpoint = checkpoint
        self._is_managed = is_managed
        self._policy = policy
        self._run_id = run_id
        self._started_from = started_from

    def after_save(self, storage_id: str, superseded: str | None) -> None:
        """Delete the best of before, and what the configured numbers do not keep.

        In a trial of the platform nothing: it knows what other trials did and what is in use.
        """
        if self._is_managed:
            return
        protected = {name for name in (storage_id, self._started_from) if name is not None}
        try:
            if superseded is not None and superseded not in protected:
                self._checkpoint.delete(superseded)
            if self._policy is not None:
                self._checkpoint.apply_retention(self._policy, [self._run_id], protected)
        except (DeterminedError, OSError) as e:
            logger.warning(f"An old checkpoint could not be deleted and is kept: {e}")

    def after_error(self, earlier: str, batches_trained: int) -> None:
        """Delete an earlier state that is not exact, unless it had come further than this one."""
        if self._is_managed or earlier == self._started_from:
            return
        try:
            steps = self._checkpoint.get_metadata(earlier).get("steps_completed") or 0
            if steps <= batches_trained:
                self._checkpoint.delete(earlier)
        except (DeterminedError, OSError) as e:
            logger.warning(f"An old checkpoint could not be deleted and is kept: {e}")


def configured_policy(context: PyTorchTrialContext, plan: FitPlan) -> RetentionPolicy | None:
    """Return the numbers given to `fit`, `init` or in the configuration, in this order, if any."""
    section = (context._exp_conf or {}).get("checkpoint_storage") or {}
    section = {**section, **context._storage_section}
    given = {key: section[key] for key in _KEYS if key in section}
    if plan.keep_best is not None:
        given["save_trial_best"] = plan.keep_best
    if plan.keep_last is not None:
        given["save_trial_latest"] = plan.keep_last
    if not given:
        return None
    return RetentionPolicy(
        **given, metric_name=plan.metric, smaller_is_better=plan.smaller_is_better
    )
