"""Queries for a single object: one that does not exist is an error."""

from __future__ import annotations

import uuid as uuids
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined.errors import NotFoundError, RefusedError
from determined.platform.service._supervised import SupervisedHome
from determined.store import Checkpoint, Experiment, Trial, TrialFilter

if TYPE_CHECKING:  # most queries do not need it, and `det` must start fast
    from determined.platform.queries.verification import Verified

_SHORTEST_PREFIX = 4


class Lookups(SupervisedHome):
    """Experiments, trials, checkpoints and projects of a home, by id."""

    def experiment(self, experiment_id: int) -> Experiment:
        """An experiment."""
        found = self.reader.experiment(experiment_id) if self.has_store else None
        if found is None:
            raise NotFoundError(
                f"There is no experiment {experiment_id}. `det experiment list --all` shows all."
            )
        return found

    def trial(self, trial_id: int) -> Trial:
        """A trial."""
        found = self.reader.trial(trial_id) if self.has_store else None
        if found is None:
            raise NotFoundError(
                f"There is no trial {trial_id}. `det experiment list-trials ID` shows the trials "
                "of an experiment."
            )
        return found

    def checkpoint(self, uuid: str) -> Checkpoint:
        """A checkpoint, by its UUID or a beginning that no other has."""
        found = self.reader.checkpoint(uuid) if self.has_store else None
        if found is None and self.has_store and len(uuid) >= _SHORTEST_PREFIX:
            similar = self.reader.checkpoints_beginning_with(uuid, 3)
            if len(similar) > 1:
                raise NotFoundError(
                    f"{uuid} begins the UUIDs of several checkpoints, such as {similar[0].uuid} "
                    f"and {similar[1].uuid}: give more of it."
                )
            found = similar[0] if similar else None
        if found is None:
            raise NotFoundError(
                f"There is no checkpoint {uuid}. `det experiment list-checkpoints ID` shows those "
                "of an experiment."
            )
        return found

    def metrics_at(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """What the validation at the step of a checkpoint reported."""
        if checkpoint.trial_id is None:
            return {}
        reports = self.reader.metrics.reports(checkpoint.trial_id, "validation")
        return next(
            (r.metrics for r in reports if r.steps_completed == checkpoint.steps_completed), {}
        )

    def download(self, checkpoint: Checkpoint, target: Path) -> Path:
        """Copy a checkpoint into the folder `target`, whole or not at all."""
        from determined.platform.queries.downloads import download, storage_of

        if checkpoint.experiment_id is None:
            raise RefusedError(f"Checkpoint {checkpoint.uuid} belongs to no experiment.")
        experiment = self.experiment(checkpoint.experiment_id)
        return download(checkpoint, storage_of(checkpoint, experiment), target)

    def verify(self, checkpoint: Checkpoint) -> Verified:
        """Read every file of a checkpoint and compare it with what was saved."""
        from determined.platform.queries.verification import verify

        if checkpoint.experiment_id is None:
            raise RefusedError(f"Checkpoint {checkpoint.uuid} belongs to no experiment.")
        return verify(checkpoint, self.experiment(checkpoint.experiment_id))

    def running_experiments(self) -> set[int]:
        """The experiments that have a run at this moment."""
        trials = {run.trial_id for run in self.reader.unfinished_runs()}
        found = self.reader.trials(TrialFilter(ids=sorted(trials))).rows if trials else []
        return {trial.experiment_id for trial in found}

    def projects(self) -> dict[int, tuple[str, str]]:
        """The names of each project's workspace and of itself, by the project's id."""
        workspaces = {
            workspace.id: workspace.name for workspace in self.reader.registry.workspaces()
        }
        return {p.id: (workspaces[p.workspace_id], p.name) for p in self.reader.registry.projects()}

    def project_names(self, project_id: int) -> tuple[str, str]:
        """The workspace and the project of an id."""
        known = self.projects() if self.has_store else {}
        if project_id not in known:
            raise NotFoundError(f"There is no project {project_id}.")
        return known[project_id]

    def write_code(self, experiment_id: int, target: Path) -> None:
        """Write the code of an experiment to an archive; nothing half-written stays behind."""
        from determined.platform.homes.code_archive import write_archive
        from determined.platform.homes.snapshot import load_snapshot

        digest = self.experiment(experiment_id).snapshot_id
        if digest is None:
            raise RefusedError(f"Experiment {experiment_id} was created without code.")
        snapshot = load_snapshot(self.home.snapshots, digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{uuids.uuid4()}")
        try:
            with draft.open("xb") as file:
                write_archive(snapshot, file)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
