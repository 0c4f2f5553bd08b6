"""Which checkpoints to keep, and the careful deletion of the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from determined._contracts.retention import Candidate, Retention, kept
from determined.errors import DeterminedError
from determined.storage._base import CheckpointInUseError, StorageManager, StoredCheckpoint
from determined.storage._patterns import EVERYTHING

logger = logging.getLogger("determined.storage")


@dataclass(frozen=True)
class RetentionPolicy:
    """How many checkpoints to keep: the union of the three rules.

    Best means best by `metric_name`; without one the first two rules keep nothing.
    """

    save_experiment_best: int = 0
    save_trial_best: int = 1
    save_trial_latest: int = 1
    metric_name: str | None = None
    smaller_is_better: bool = True

    def __post_init__(self) -> None:
        for name in ("save_experiment_best", "save_trial_best", "save_trial_latest"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"`{name}` must be an integer >= 0, got {value!r}.")

    def kept(self, checkpoints: Iterable[StoredCheckpoint]) -> frozenset[str]:
        """The ids that the rules keep; each `run_id` is a trial, all together an experiment."""
        policy = Retention(self.save_experiment_best, self.save_trial_best, self.save_trial_latest)
        return kept(map(self._candidate, checkpoints), policy, self.smaller_is_better)

    def _candidate(self, checkpoint: StoredCheckpoint) -> Candidate:
        steps, sequence = checkpoint.order
        value = None if self.metric_name is None else checkpoint.metric(self.metric_name)
        return Candidate(
            checkpoint.storage_id,
            checkpoint.run_id,
            steps,
            value,
            sequence,
            sequence,
            checkpoint.is_exact,
        )


def apply_retention(
    manager: StorageManager,
    policy: RetentionPolicy,
    run_ids: Collection[str],
    *,
    protected: Collection[str] = (),
    on_delete: Callable[[str], None] | None = None,
) -> list[str]:
    """Delete the checkpoints of these runs that no rule keeps; return their ids, oldest first.

    Kept in any case: the newest exact checkpoint of each run, those in `protected`, one that a live
    process restores, one with files in it that we did not write, and all of other runs.
    A deletion that fails is logged and tried again next time.
    """
    checkpoints = [c for run_id in sorted(run_ids) for c in manager.list_tagged(run_id)]
    by_age = sorted(checkpoints, key=lambda c: c.manifest.sequence)
    newest = {c.run_id: c.storage_id for c in by_age if c.is_exact}  # what `latest` finds
    keep = policy.kept(checkpoints) | set(newest.values()) | set(protected)
    deleted = []
    for checkpoint in checkpoints:
        if checkpoint.storage_id not in keep and _delete(manager, checkpoint):
            deleted.append(checkpoint.storage_id)
            if on_delete is not None:
                on_delete(checkpoint.storage_id)
    return deleted


def _delete(manager: StorageManager, checkpoint: StoredCheckpoint) -> bool:
    if checkpoint.extra_files:
        logger.warning(
            "Checkpoint %s is kept because it contains files that were not saved with it: %s.",
            checkpoint.storage_id,
            ", ".join(checkpoint.extra_files),
        )
        return False
    try:
        manager.delete(checkpoint.storage_id, [EVERYTHING])
    except CheckpointInUseError as error:
        logger.info("%s", error)
        return False
    except DeterminedError as error:
        logger.warning("Could not delete checkpoint %s: %s", checkpoint.storage_id, error)
        return False
    logger.debug("Deleted checkpoint %s according to the retention rules.", checkpoint.storage_id)
    return True
