"""Where experiments are put: the project that a configuration names."""

from __future__ import annotations

from typing import Any

from determined.errors import RefusedError
from determined.store import Transaction


def project_id(transaction: Transaction, config: dict[str, Any], owner: str) -> int:
    """The project that a configuration names; it and its workspace are created if missing."""
    registry = transaction.registry
    workspace, project = config["workspace"], config["project"]
    found = registry.find_workspace(workspace) or registry.create_workspace(workspace, owner)
    existing = registry.find_project(found.id, project)
    if found.archived or (existing is not None and existing.archived):
        raise RefusedError(f"The project {project!r} of the workspace {workspace!r} is archived.")
    return (existing or registry.create_project(found.id, project, owner)).id
