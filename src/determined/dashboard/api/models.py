"""The model registry."""

from __future__ import annotations

from typing_extensions import TypedDict

from determined.dashboard.endpoints.answers import Values
from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.endpoints.parameters import Name
from determined.dashboard.view import View
from determined.platform.queries.outcome import folder_of, load_lines
from determined.platform.service import NotFoundError
from determined.store import Checkpoint, Model, ModelVersion

routes = Routes("models")


class VersionJson(TypedDict):
    """A version of a model, and where its checkpoint came from."""

    number: int
    name: str
    comment: str
    notes: str
    metadata: Values
    created: float
    checkpoint_uuid: str
    trial_id: int | None
    experiment_id: int | None
    steps: int | None
    size: int | None
    state: str
    load: str


class ModelJson(TypedDict):
    id: int
    name: str
    description: str
    labels: list[str]
    owner: str
    workspace: str
    archived: bool
    created: float
    updated: float
    metadata: Values
    num_versions: int
    latest: VersionJson | None


class ModelDetail(ModelJson):
    versions: list[VersionJson]


class ModelsJson(TypedDict):
    total: int
    rows: list[ModelJson]


@routes.get("/models")
def models(view: View) -> ModelsJson:
    """All models."""
    found = view.reader.registry.models() if view.has_store else []
    rows = [_model(view, model)[0] for model in found]
    return {"total": len(rows), "rows": rows}


@routes.get("/models/{name}")
def model(view: View, name: Name) -> ModelDetail:
    """One model with its versions, newest first."""
    found = view.reader.registry.model(name) if view.has_store else None
    if found is None:
        raise NotFoundError("There is no model of this name.")
    shape, versions = _model(view, found)
    return {**shape, "versions": versions}


def _model(view: View, model: Model) -> tuple[ModelJson, list[VersionJson]]:
    versions = [_version(view, version) for version in view.reader.registry.versions(model.id)]
    workspaces = {workspace.id: workspace.name for workspace in view.reader.registry.workspaces()}
    shape: ModelJson = {
        "id": model.id,
        "name": model.name,
        "description": model.description,
        "labels": model.labels,
        "owner": model.owner,
        "workspace": workspaces[model.workspace_id],
        "archived": model.archived,
        "created": model.created,
        "updated": model.updated,
        "metadata": model.metadata,
        "num_versions": len(versions),
        "latest": versions[0] if versions else None,
    }
    return shape, versions


def _version(view: View, version: ModelVersion) -> VersionJson:
    checkpoint = view.reader.checkpoint(version.checkpoint_uuid)
    return {
        "number": version.number,
        "name": version.name,
        "comment": version.comment,
        "notes": version.notes,
        "metadata": version.metadata,
        "created": version.created,
        "checkpoint_uuid": version.checkpoint_uuid,
        "trial_id": checkpoint.trial_id if checkpoint else None,
        "experiment_id": checkpoint.experiment_id if checkpoint else None,
        "steps": checkpoint.steps_completed if checkpoint else None,
        "size": checkpoint.size if checkpoint else None,
        "state": checkpoint.state if checkpoint else "DELETED",
        "load": _load(view, checkpoint),
    }


def _load(view: View, checkpoint: Checkpoint | None) -> str:
    """The lines of code that load a checkpoint; empty if it is gone or holds no trial."""
    owner = view.reader.experiment(checkpoint.experiment_id or 0) if checkpoint else None
    if checkpoint is None or owner is None:
        return ""
    return load_lines(checkpoint, folder_of(checkpoint, owner))
