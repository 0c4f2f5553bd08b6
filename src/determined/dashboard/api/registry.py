"""Actions on models: the commands of the platform's model registry.

They are separate from the queries: a name may contain slashes, so paths that continue after the
name must come first.
"""

from __future__ import annotations

from typing import Any, TypedDict

from determined.dashboard.endpoints.bodies import LABELS, record, text
from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.endpoints.kinds import Integer, Text
from determined.dashboard.view import View
from determined.platform.service.model_registry import ModelRegistry

routes = Routes("registry")

NAME = Text(500, shortest=1)
_VERSION = Integer(1)
_NEW = record(("name",), name=text(255, 1), description=text(10_000), labels=LABELS)
_CHANGES = record((), 1, description=text(10_000), labels=LABELS, archived={"type": "boolean"})
_REGISTER = record(("checkpoint_uuid",), checkpoint_uuid=text(100, 1))
_VERSION_CHANGES = record((), 1, name=text(255), comment=text(10_000), notes=text(500_000))


class ModelDone(TypedDict):
    """The action is done; `version` is the version it was about."""

    ok: bool
    model: str
    version: int | None


@routes.post("/models", body=_NEW)
def create(view: View, body: dict[str, Any]) -> ModelDone:
    """Add a model that versions can be registered for."""
    model = ModelRegistry(view.service).create(**body)
    return _done(model.name)


@routes.post("/models/{name}/versions", name=NAME, body=_REGISTER)
def register(view: View, name: str, body: dict[str, Any]) -> ModelDone:
    """Make a checkpoint the next version of a model, which protects it from deletion."""
    registry = ModelRegistry(view.service)
    made = registry.register(registry.model(name).id, body["checkpoint_uuid"])
    return _done(name, made.number)


@routes.patch(
    "/models/{name}/versions/{version}", name=NAME, version=_VERSION, body=_VERSION_CHANGES
)
def change_version(view: View, name: str, version: int, body: dict[str, Any]) -> ModelDone:
    """Set the name, comment or notes of a version."""
    registry = ModelRegistry(view.service)
    registry.change_version(registry.version(registry.model(name), version).id, **body)
    return _done(name, version)


@routes.post("/models/{name}/versions/{version}/delete", name=NAME, version=_VERSION)
def delete_version(view: View, name: str, version: int) -> ModelDone:
    """Remove a version; its checkpoint stays, no longer protected by it."""
    registry = ModelRegistry(view.service)
    registry.delete_version(registry.version(registry.model(name), version).id)
    return _done(name, version)


@routes.post("/models/{name}/delete", name=NAME)
def delete(view: View, name: str) -> ModelDone:
    """Remove a model and its versions; the checkpoints stay, no longer protected."""
    registry = ModelRegistry(view.service)
    registry.delete(registry.model(name).id)
    return _done(name)


@routes.patch("/models/{name}", name=NAME, body=_CHANGES)
def change(view: View, name: str, body: dict[str, Any]) -> ModelDone:
    """Set the description or labels, archive or unarchive."""
    registry = ModelRegistry(view.service)
    registry.change(registry.model(name).id, **body)
    return _done(name)


def _done(model: str, version: int | None = None) -> ModelDone:
    return {"ok": True, "model": model, "version": version}
