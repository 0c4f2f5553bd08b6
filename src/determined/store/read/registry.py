"""Queries on things that users name: workspaces, projects, models and their versions."""

from __future__ import annotations

from determined.store._records import (
    MODEL_VERSIONS,
    MODELS,
    OVER_STATES,
    PROJECTS,
    WORKSPACES,
    Model,
    ModelVersion,
    Project,
    Workspace,
)
from determined.store.read.connections import Queries
from determined.store.read.pages import Where


class RegistryQueries(Queries):
    """Queries on workspaces, projects and the model registry."""

    def workspaces(self) -> list[Workspace]:
        """All workspaces."""
        return WORKSPACES.select(self._connection, "ORDER BY id")

    def projects(self, workspace_id: int | None = None) -> list[Project]:
        """All projects, or those of a workspace."""
        where = Where()
        where.equal("workspace_id", workspace_id)
        return PROJECTS.select(self._connection, f"{where} ORDER BY id", *where.parameters)

    def experiments_per_project(self) -> dict[int, tuple[int, int]]:
        """The number of experiments of each project, and how many are unfinished."""
        over = ",".join("?" * len(OVER_STATES))
        sql = (
            f"SELECT project_id, count(*), sum(state NOT IN ({over})) FROM experiment "
            "GROUP BY project_id"
        )
        rows = self._connection.execute(sql, OVER_STATES)
        return {project_id: (total, active) for project_id, total, active in rows}

    def models(self) -> list[Model]:
        """All registered models."""
        return MODELS.select(self._connection, "ORDER BY id")

    def model(self, name: str) -> Model | None:
        """A model by name."""
        return MODELS.find(self._connection, "name=?", name)

    def versions(self, model_id: int) -> list[ModelVersion]:
        """The versions of a model, newest first."""
        rest = "WHERE model_id=? ORDER BY number DESC"
        return MODEL_VERSIONS.select(self._connection, rest, model_id)

    def versions_of_checkpoint(self, uuid: str) -> list[ModelVersion]:
        """The model versions that a checkpoint is registered as."""
        return MODEL_VERSIONS.select(self._connection, "WHERE checkpoint_uuid=?", uuid)
