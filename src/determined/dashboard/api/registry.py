"""Actions on models: the commands of the platform's model registry.

They are separate from the queries: a name may contain slashes, so paths that continue after the
name must come first.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.endpoints.parameters import (
    NO_NULL,
    Body,
    Changes,
    Description,
    Id,
    Labels,
    Name,
    Notes,
)
from determined.dashboard.view import View
from determined.platform.service.model_registry import ModelRegistry

routes = Routes("registry")

_NewName = Annotated[str, Field(min_length=1, max_length=255, pattern=NO_NULL)]


class NewModel(Body):
    name: _NewName
    description: Description = ""
    labels: Labels = []


class ModelChanges(Changes):
    description: Description = ""
    labels: Labels = []
    archived: bool = False


class NewVersion(Body):
    checkpoint_uuid: Annotated[str, Field(min_length=1, max_length=100, pattern=NO_NULL)]


class VersionChanges(Changes):
    name: Annotated[str, Field(max_length=255, pattern=NO_NULL)] = ""
    comment: Description = ""
    notes: Notes = ""


class ModelCompleted(TypedDict):
    """The action is done; `version` is the version it was about."""

    ok: bool
    model: str
    version: int | None


@routes.post("/models")
def create(view: View, body: NewModel) -> ModelCompleted:
    """Add a model that versions can be registered for."""
    model = ModelRegistry(view.service).create(**body.given())
    return _completed(model.name)


@routes.post("/models/{name}/versions")
def register(view: View, name: Name, body: NewVersion) -> ModelCompleted:
    """Make a checkpoint the next version of a model, which protects it from deletion."""
    registry = ModelRegistry(view.service)
    made = registry.register(registry.model(name).id, body.checkpoint_uuid)
    return _completed(name, made.number)


@routes.patch("/models/{name}/versions/{version}")
def change_version(view: View, name: Name, version: Id, body: VersionChanges) -> ModelCompleted:
    """Set the name, comment or notes of a version."""
    registry = ModelRegistry(view.service)
    registry.change_version(registry.version(registry.model(name), version).id, **body.given())
    return _completed(name, version)


@routes.post("/models/{name}/versions/{version}/delete")
def delete_version(view: View, name: Name, version: Id) -> ModelCompleted:
    """Remove a version; its checkpoint stays, no longer protected by it."""
    registry = ModelRegistry(view.service)
    registry.delete_version(registry.version(registry.model(name), version).id)
    return _completed(name, version)


@routes.post("/models/{name}/delete")
def delete(view: View, name: Name) -> ModelCompleted:
    """Remove a model and its versions; the checkpoints stay, no longer protected."""
    registry = ModelRegistry(view.service)
    registry.delete(registry.model(name).id)
    return _completed(name)


@routes.patch("/models/{name}")
def change(view: View, name: Name, body: ModelChanges) -> ModelCompleted:
    """Set the description or labels, archive or unarchive."""
    registry = ModelRegistry(view.service)
    registry.change(registry.model(name).id, **body.given())
    return _completed(name)


def _completed(model: str, version: int | None = None) -> ModelCompleted:
    return {"ok": True, "model": model, "version": version}
