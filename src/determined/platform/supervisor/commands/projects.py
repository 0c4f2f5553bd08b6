"""The projects of experiments: the one that a configuration names, and moving to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from determined.errors import RefusedError
from determined.platform.supervisor.decisions import Decisions
from determined.store import Transaction

if TYPE_CHECKING:
    from determined.config.model.experiment import Configuration


def project_id(transaction: Transaction, configuration: Configuration, owner: str) -> int:
    """The project that a configuration names; it and its workspace are created if missing."""
    registry = transaction.registry
    workspace, project = configuration.workspace, configuration.project
    found = registry.find_workspace(workspace) or registry.create_workspace(workspace, owner)
    existing = registry.find_project(found.id, project)
    if found.archived or (existing is not None and existing.archived):
        raise RefusedError(f"The project {project!r} of the workspace {workspace!r} is archived.")
    return (existing or registry.create_project(found.id, project, owner)).id


def move(
    decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Move an experiment to an existing project."""
    workspace_name, project_name = arguments["workspace"], arguments["project"]
    workspace = transaction.registry.find_workspace(workspace_name)
    if workspace is None:
        raise RefusedError(
            f"There is no workspace {workspace_name!r}: `det workspace list` shows them, "
            "`det workspace create` creates one."
        )
    project = transaction.registry.find_project(workspace.id, project_name)
    if project is None:
        raise RefusedError(
            f"There is no project {project_name!r} in the workspace {workspace_name!r}: "
            "`det project create` creates one."
        )
    if workspace.archived or project.archived:
        what = ("workspace", workspace_name) if workspace.archived else ("project", project_name)
        raise RefusedError(f"The {what[0]} {what[1]!r} is archived: unarchive it first.")
    record = transaction.experiment(arguments["experiment_id"])
    config = record.config | {"workspace": workspace.name, "project": project.name}
    transaction.update_experiment(record.id, project_id=project.id, config=config)
    decisions.refresh(record.id)
    return {"project_id": project.id}
