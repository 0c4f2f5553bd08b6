"""The verbs of `Service` that delete; they return when it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from determined.errors import RefusedError
from determined.platform.rules.gc_policy import has_policy, no_policy, policy_of
from determined.platform.service._lookups import Lookups
from determined.store import (
    Checkpoint,
    Experiment,
    ExperimentFilter,
    RatedCheckpoint,
    Retention,
    TrialFilter,
)

EVERYTHING = ("**/*",)
_POLL_SECONDS = 0.02


class DeletingVerbs(Lookups):
    """The part of `Service` that deletes."""

    def delete_experiments(self, experiment_ids: Sequence[int]) -> None:
        """Delete experiments that have ended, with metrics, logs and checkpoints: all or none.

        Refused if a checkpoint is registered. What is interrupted continues in the background.
        """
        for number in experiment_ids:
            self.experiment(number)
        self.ask("delete", {"experiment_ids": list(experiment_ids)})
        self._wait(lambda: not self._with_state("DELETING", experiment_ids))
        for record in self._with_state("DELETE_FAILED", experiment_ids):
            raise RefusedError(
                f"Experiment {record.id} {record.reason.rstrip('.')}. "
                f"`det experiment delete {record.id}` tries again."
            )

    def delete_checkpoints(
        self, uuids: Sequence[str], globs: Collection[str] = EVERYTHING
    ) -> list[Checkpoint]:
        """Delete checkpoints, or what patterns match of them; return them as they are now.

        Refused if one is registered, or a trial needs it. Without patterns, nothing is deleted:
        their records are brought in line with the files they have.
        """
        uuids = list(dict.fromkeys(self.checkpoint(uuid).uuid for uuid in uuids))
        for pattern in globs:
            check_glob(pattern)
        self.ask("delete_checkpoints", {"uuids": list(uuids), "globs": list(globs)})
        self._wait(lambda: not any(self._is_deleting(uuid) for uuid in uuids))
        for uuid in uuids:
            deletion = self.reader.deletion(uuid)
            if deletion is not None:
                reason = f"could not be deleted: {deletion.failure.rstrip('.')}"
                raise RefusedError(f"Checkpoint {uuid} {reason}. The same command tries again.")
        return [self.checkpoint(uuid) for uuid in uuids]

    def garbage(self, experiment_id: int, policy: Retention | None = None) -> list[RatedCheckpoint]:
        """The checkpoints that a policy, by default the experiment's, would not keep."""
        record = self.experiment(experiment_id)
        if not has_policy(record):
            raise RefusedError(no_policy(record))
        return self.reader.garbage(experiment_id, policy or policy_of(record))

    def set_gc_policy(self, experiment_id: int, policy: Retention) -> None:
        """Change how many checkpoints an experiment keeps, and delete the others now."""
        self.experiment(experiment_id)
        counts = {
            "experiment_best": policy.experiment_best,
            "trial_best": policy.trial_best,
            "trial_latest": policy.trial_latest,
        }
        self.ask("set_gc_policy", {"experiment_id": experiment_id, "policy": counts})
        self._wait_for_collection([experiment_id])

    def collect_garbage(self, experiment_ids: Sequence[int]) -> None:
        """Delete now what the policies of experiments do not keep."""
        for number in experiment_ids:
            self.experiment(number)
        self.ask("collect", {"experiment_ids": list(experiment_ids)})
        self._wait_for_collection(experiment_ids)

    def collect_garbage_of_all(self) -> None:
        """Delete now what the policies of all experiments do not keep."""
        found = self.reader.experiments().rows
        numbers = [
            record.id
            for record in found
            if has_policy(record) and record.checkpoint_count and "DELET" not in record.state
        ]
        if numbers:
            self.collect_garbage(numbers)

    def delete_tensorboard_files(self, experiment_id: int) -> int:
        """Delete the event files of an experiment's trials; returns the bytes that are free."""
        from determined.platform.homes.disk_usage import Waste, remove, size_of

        record = self.experiment(experiment_id)
        if record.id in self.running_experiments():
            raise RefusedError(f"Experiment {record.id} is running: its event files are in use.")
        trials = self.reader.trials(TrialFilter(experiment_id=experiment_id)).rows
        folders: list[Path] = [self.home.tensorboard / str(trial.id) for trial in trials]
        waste = [Waste(path, "", size_of(path)) for path in folders if path.exists()]
        return remove([item for item in waste if self.may_delete(item.path)])

    def _wait_for_collection(self, experiment_ids: Sequence[int]) -> None:
        """Wait until the checkpoints that are to go are gone, or could not be deleted."""
        self._wait(lambda: not any(self.experiment(n).gc_is_due for n in experiment_ids))
        self._wait(lambda: not any(self.reader.is_deleting(number) for number in experiment_ids))

    def _with_state(self, state: str, experiment_ids: Sequence[int]) -> list[Experiment]:
        wanted = ExperimentFilter(ids=list(experiment_ids), states=[state])
        return list(self.reader.experiments(wanted).rows)

    def _is_deleting(self, uuid: str) -> bool:
        deletion = self.reader.deletion(uuid)
        return deletion is not None and not deletion.failure

    def _wait(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self.wake_if_needed()
            time.sleep(_POLL_SECONDS)


def check_glob(pattern: str) -> None:
    """Raise unless a pattern stays within a checkpoint."""
    if not pattern.strip():
        raise RefusedError("A pattern must not be empty: `*.pt`, for example, or `optimizer/**`.")
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise RefusedError(f"The pattern {pattern!r} points outside the checkpoint.")
