"""Commands on what users name: workspaces, projects, models, and the metadata of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from determined.errors import RefusedError
from determined.platform.supervisor.decisions import Decisions
from determined.store import Registry, Transaction

Answer = dict[str, Any]
_Arguments = dict[str, Any]
_DEFAULT_ID = 1  # the workspace and the project of experiments and models that name none
_LONGEST_NAME = 255


def _create_workspace(registry: Registry, given: _Arguments) -> Answer:
    return {"id": registry.create_workspace(_name(given["name"]), given["owner"]).id}


def _set_workspace(registry: Registry, given: _Arguments) -> Answer:
    workspace = registry.workspace(given["workspace_id"])
    _keep_default("workspace", workspace.id)
    registry.update_workspace(workspace.id, **_changes(given, {"name", "archived"}))
    return {}


def _delete_workspace(registry: Registry, given: _Arguments) -> Answer:
    workspace = registry.workspace(given["workspace_id"])
    _keep_default("workspace", workspace.id)
    registry.delete_workspace(workspace.id)
    return {}


def _create_project(registry: Registry, given: _Arguments) -> Answer:
    workspace = registry.workspace(given["workspace_id"])
    if workspace.archived:
        raise RefusedError(f"Workspace {workspace.name!r} is archived: it takes no new projects.")
    new = (workspace.id, _name(given["name"]), given["owner"], given["description"])
    return {"id": registry.create_project(*new).id}


def _set_project(registry: Registry, given: _Arguments) -> Answer:
    project = registry.project(given["project_id"])
    changes = _changes(given, {"name", "description", "key", "archived"})
    if changes.keys() & {"name", "archived"}:
        _keep_default("project", project.id)
    if (note := given.get("add_note")) is not None:
        changes["notes"] = [*project.notes, {"name": note["name"], "contents": note["contents"]}]
    if (name := given.get("remove_note")) is not None:
        changes["notes"] = [note for note in project.notes if note["name"] != name]
        if changes["notes"] == project.notes:
            raise RefusedError(f"Project {project.name!r} has no note named {name!r}.")
    if changes:
        registry.update_project(project.id, **changes)
    return {}


def _delete_project(registry: Registry, given: _Arguments) -> Answer:
    project = registry.project(given["project_id"])
    _keep_default("project", project.id)
    registry.delete_project(project.id)
    return {}


def _create_model(registry: Registry, given: _Arguments) -> Answer:
    name = _name(given["name"])
    if name.isdecimal():
        raise RefusedError(f"A model cannot be named {name!r}: that looks like an id.")
    record = registry.create_model(
        name,
        given["owner"],
        description=given["description"],
        metadata=given["metadata"],
        labels=given["labels"],
        workspace_id=registry.workspace(given["workspace_id"]).id,
    )
    return {"id": record.id}


def _set_model(registry: Registry, given: _Arguments) -> Answer:
    model = registry.model(given["model_id"])
    changes = _changes(given, {"description", "labels", "archived", "workspace_id"})
    if "workspace_id" in changes:
        registry.workspace(changes["workspace_id"])
    if (label := given.get("add_label")) is not None:
        changes["labels"] = list(dict.fromkeys([*model.labels, label]))
    if (label := given.get("remove_label")) is not None:
        changes["labels"] = [other for other in model.labels if other != label]
    if (metadata := _edited(model.metadata, given)) is not None:
        changes["metadata"] = metadata
    registry.update_model(model.id, **changes)
    return {}


def _delete_model(registry: Registry, given: _Arguments) -> Answer:
    registry.delete_model(registry.model(given["model_id"]).id)
    return {}


def _set_version(registry: Registry, given: _Arguments) -> Answer:
    version = registry.version(given["version_id"])
    changes = _changes(given, {"name", "notes", "comment"}, may_be_empty=True)
    if (metadata := _edited(version.metadata, given)) is not None:
        changes["metadata"] = metadata
    if changes:
        registry.update_version(version.id, **changes)
    return {}


def _delete_version(registry: Registry, given: _Arguments) -> Answer:
    registry.delete_version(registry.version(given["version_id"]).id)
    return {}


def _register_version(registry: Registry, given: _Arguments) -> Answer:
    model = registry.model(given["model_id"])
    if model.archived:
        raise RefusedError(f"Model {model.name!r} is archived: it takes no new versions.")
    version = registry.register_version(model.id, given["checkpoint_uuid"])
    return {"id": version.id, "number": version.number}


def _set_checkpoint(
    decisions: Decisions, transaction: Transaction, arguments: _Arguments
) -> Answer:
    checkpoint = transaction.checkpoint(arguments["uuid"])
    if checkpoint is None:
        raise RefusedError(f"There is no checkpoint {arguments['uuid']}.")
    metadata = _edited(checkpoint.metadata, arguments)
    if metadata is not None:
        transaction.update_checkpoint_metadata(checkpoint.uuid, metadata)
    return {}


def _edited(metadata: Mapping[str, Any], given: _Arguments) -> dict[str, Any] | None:
    """Metadata with what a command adds and without what it removes; None if it does neither."""
    add, remove = given.get("add_metadata"), given.get("remove_metadata")
    if add is None and remove is None:
        return None
    rest = {key: value for key, value in metadata.items() if key not in (remove or ())}
    return {**rest, **(add or {})}


def _changes(given: _Arguments, allowed: set[str], *, may_be_empty: bool = False) -> dict[str, Any]:
    changes = dict(given.get("changes", {}))
    if unknown := changes.keys() - allowed:
        raise RefusedError(f"These cannot be set: {', '.join(sorted(unknown))}.")
    if "name" in changes and not may_be_empty:
        changes["name"] = _name(changes["name"])
    return changes


def _name(text: str) -> str:
    if not text.strip() or not text.isprintable() or len(text) > _LONGEST_NAME:
        raise RefusedError(
            f"A name needs 1 to {_LONGEST_NAME} printable characters on one line, got "
            f"{text[:40]!r}."
        )
    return text


def _keep_default(what: str, number: int) -> None:
    if number == _DEFAULT_ID:
        raise RefusedError(
            f"The {what} 'Uncategorized' cannot be changed: it holds everything that names no "
            "other."
        )


def _on_registry(
    verb: Callable[[Registry, _Arguments], Answer],
) -> Callable[[Decisions, Transaction, _Arguments], Answer]:
    return lambda decisions, transaction, arguments: verb(transaction.registry, arguments)


REGISTRY_VERBS: dict[str, Callable[[Decisions, Transaction, _Arguments], Answer]] = {
    "create_workspace": _on_registry(_create_workspace),
    "set_workspace": _on_registry(_set_workspace),
    "delete_workspace": _on_registry(_delete_workspace),
    "create_project": _on_registry(_create_project),
    "set_project": _on_registry(_set_project),
    "delete_project": _on_registry(_delete_project),
    "create_model": _on_registry(_create_model),
    "set_model": _on_registry(_set_model),
    "delete_model": _on_registry(_delete_model),
    "register_version": _on_registry(_register_version),
    "set_version": _on_registry(_set_version),
    "delete_version": _on_registry(_delete_version),
    "set_checkpoint": _set_checkpoint,
}
