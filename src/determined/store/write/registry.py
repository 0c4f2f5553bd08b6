"""Workspaces, projects and the model registry: small rows that users name."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from typing import Any, TypeVar

from determined.errors import StoreError
from determined.store._records import (
    CHECKPOINTS,
    MODEL_VERSIONS,
    MODELS,
    PROJECTS,
    WORKSPACES,
    Model,
    ModelVersion,
    Project,
    Workspace,
)

T = TypeVar("T")


class Registry:
    """Operations on named things, within a transaction of the writer."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def workspace(self, workspace_id: int) -> Workspace:
        """The workspace with an id."""
        return _existing(WORKSPACES.find(self._connection, "id=?", workspace_id), "workspace")

    def project(self, project_id: int) -> Project:
        """The project with an id."""
        return _existing(PROJECTS.find(self._connection, "id=?", project_id), "project")

    def model(self, model_id: int) -> Model:
        """The model with an id."""
        return _existing(MODELS.find(self._connection, "id=?", model_id), "model")

    def version(self, version_id: int) -> ModelVersion:
        """The model version with an id."""
        found = MODEL_VERSIONS.find(self._connection, "id=?", version_id)
        return _existing(found, "model version")

    def create_workspace(self, name: str, owner: str) -> Workspace:
        """Add a workspace; names are unique."""
        values = {"name": name, "owner": owner, "created": time.time()}
        with _unique(f"A workspace named {name!r}"):
            return self.workspace(WORKSPACES.insert(self._connection, values))

    def find_workspace(self, name: str) -> Workspace | None:
        """The workspace with a name."""
        return WORKSPACES.find(self._connection, "name=?", name)

    def find_project(self, workspace_id: int, name: str) -> Project | None:
        """The project with a name in a workspace."""
        return PROJECTS.find(self._connection, "workspace_id=? AND name=?", workspace_id, name)

    def ensure_project(self, workspace_name: str, name: str, owner: str) -> Project:
        """The project with a name in a workspace; both are made if they do not exist."""
        workspace = self.find_workspace(workspace_name)
        if workspace is None:
            workspace = self.create_workspace(workspace_name, owner)
        found = self.find_project(workspace.id, name)
        return found or self.create_project(workspace.id, name, owner)

    def update_workspace(self, workspace_id: int, **changes: Any) -> None:
        """Set fields of a workspace."""
        with _unique(f"A workspace named {changes.get('name')!r}"):
            WORKSPACES.update(self._connection, "id=?", [workspace_id], changes)

    def delete_workspace(self, workspace_id: int) -> None:
        """Remove an empty workspace."""
        name = self.workspace(workspace_id).name
        with _unused(f"Workspace {name!r}", "projects or models"):
            self._connection.execute("DELETE FROM workspace WHERE id=?", (workspace_id,))

    def create_project(
        self, workspace_id: int, name: str, owner: str, description: str = ""
    ) -> Project:
        """Add a project; names are unique within their workspace."""
        values = {
            "workspace_id": workspace_id,
            "name": name,
            "description": description,
            "owner": owner,
            "created": time.time(),
        }
        with _unique(f"A project named {name!r} in this workspace"):
            return self.project(PROJECTS.insert(self._connection, values))

    def update_project(self, project_id: int, **changes: Any) -> None:
        """Set fields of a project."""
        with _unique(f"A project named {changes.get('name')!r} in this workspace"):
            PROJECTS.update(self._connection, "id=?", [project_id], changes)

    def delete_project(self, project_id: int) -> None:
        """Remove an empty project."""
        name = self.project(project_id).name
        with _unused(f"Project {name!r}", "experiments"):
            self._connection.execute("DELETE FROM project WHERE id=?", (project_id,))

    def create_model(
        self,
        name: str,
        owner: str,
        *,
        description: str = "",
        metadata: dict[str, Any] | None = None,
        labels: list[str] | None = None,
        workspace_id: int = 1,
    ) -> Model:
        """Add a model; names are unique."""
        now = time.time()
        values = {
            "name": name,
            "owner": owner,
            "description": description,
            "metadata": metadata or {},
            "labels": labels or [],
            "workspace_id": workspace_id,
            "created": now,
            "updated": now,
        }
        with _unique(f"A model named {name!r}"):
            return self.model(MODELS.insert(self._connection, values))

    def update_model(self, model_id: int, **changes: Any) -> None:
        """Set fields of a model."""
        with _unique(f"A model named {changes.get('name')!r}"):
            values = changes | {"updated": time.time()}
            MODELS.update(self._connection, "id=?", [model_id], values)

    def delete_model(self, model_id: int) -> None:
        """Remove a model and its versions; the checkpoints stay."""
        self._connection.execute("DELETE FROM model WHERE id=?", (model_id,))

    def register_version(self, model_id: int, checkpoint_uuid: str) -> ModelVersion:
        """Make a complete checkpoint the next version of a model; numbers are never reused."""
        checkpoint = CHECKPOINTS.find(self._connection, "uuid=?", checkpoint_uuid)
        if checkpoint is None or checkpoint.state not in ("COMPLETED", "PARTIALLY_DELETED"):
            state = "does not exist" if checkpoint is None else f"is {checkpoint.state}"
            raise StoreError(f"Checkpoint {checkpoint_uuid} {state}: it cannot be registered.")
        if self._connection.execute(
            "SELECT 1 FROM deletion WHERE uuid=?", (checkpoint_uuid,)
        ).fetchone():
            raise StoreError(f"Checkpoint {checkpoint_uuid} is being deleted.")
        number = self.model(model_id).last_version + 1
        values = {
            "model_id": model_id,
            "number": number,
            "checkpoint_uuid": checkpoint_uuid,
            "created": time.time(),
        }
        version_id = MODEL_VERSIONS.insert(self._connection, values)
        self.update_model(model_id, last_version=number)
        return self.version(version_id)

    def update_version(self, version_id: int, **changes: Any) -> None:
        """Set fields of a model version."""
        MODEL_VERSIONS.update(self._connection, "id=?", [version_id], changes)

    def delete_version(self, version_id: int) -> None:
        """Remove a model version; the checkpoint stays."""
        self._connection.execute("DELETE FROM model_version WHERE id=?", (version_id,))


@contextlib.contextmanager
def _unique(what: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        if "UNIQUE" not in str(error):
            raise
        raise StoreError(f"{what} exists already.") from error


@contextlib.contextmanager
def _unused(what: str, contents: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise StoreError(f"{what} still has {contents}: delete or move them first.") from error


def _existing(record: T | None, what: str) -> T:
    if record is None:
        raise StoreError(f"This {what} does not exist any more.")
    return record
