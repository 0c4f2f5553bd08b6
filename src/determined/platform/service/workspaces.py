"""Workspaces and projects: commands and queries, for every client."""

from __future__ import annotations

import getpass
from typing import Any

from determined.errors import NotFoundError
from determined.platform.service._service import Service
from determined.store import Project, Workspace


class Workspaces:
    """The workspaces of a home, and the projects in them."""

    def __init__(self, service: Service) -> None:
        self._service = service

    # Queries

    def all(self) -> list[Workspace]:
        """All workspaces, by id."""
        return self._service.reader.registry.workspaces() if self._service.has_store else []

    def named(self, name: str) -> Workspace:
        """The workspace of a name."""
        return self._one(self.all(), "name", name)

    def of_id(self, workspace_id: int) -> Workspace:
        """The workspace of an id."""
        return self._one(self.all(), "id", workspace_id)

    def projects(self, workspace_id: int | None = None) -> list[Project]:
        """All projects, or those of a workspace."""
        return (
            self._service.reader.registry.projects(workspace_id) if self._service.has_store else []
        )

    def project(self, workspace_name: str, name: str) -> Project:
        """A project by its names."""
        workspace = self.named(workspace_name)
        for project in self.projects(workspace.id):
            if project.name == name:
                return project
        raise NotFoundError(
            f"Workspace {workspace_name!r} has no project {name!r}. "
            f"`det project list WORKSPACE` shows its projects."
        )

    def project_of_id(self, project_id: int) -> Project:
        """The project of an id."""
        for project in self.projects():
            if project.id == project_id:
                return project
        raise NotFoundError(f"There is no project {project_id}. `det project list` shows all.")

    def counts(self, project_id: int) -> tuple[int, int]:
        """How many experiments a project has, and how many of them are not over."""
        return self._service.reader.registry.experiments_per_project().get(project_id, (0, 0))

    @staticmethod
    def _one(found: list[Workspace], field: str, wanted: object) -> Workspace:
        for workspace in found:
            if getattr(workspace, field) == wanted:
                return workspace
        raise NotFoundError(f"There is no workspace {wanted!r}. `det workspace list` shows all.")

    # Commands

    def create(self, name: str) -> Workspace:
        """Add a workspace; names are unique."""
        arguments = {"name": name, "owner": getpass.getuser()}
        return self.of_id(self._service.ask("create_workspace", arguments)["id"])

    def change(self, workspace_id: int, **changes: Any) -> None:
        """Set the name or archived."""
        arguments = {"workspace_id": workspace_id, "changes": changes}
        self._service.ask("set_workspace", arguments)

    def delete(self, workspace_id: int) -> None:
        """Remove an empty workspace."""
        self._service.ask("delete_workspace", {"workspace_id": workspace_id})

    def create_project(self, workspace_id: int, name: str, description: str = "") -> Project:
        """Add a project; names are unique within their workspace."""
        arguments = {
            "workspace_id": workspace_id,
            "name": name,
            "description": description,
            "owner": getpass.getuser(),
        }
        return self.project_of_id(self._service.ask("create_project", arguments)["id"])

    def change_project(self, project_id: int, **changes: Any) -> None:
        """Set the name, description, key or archived."""
        self._service.ask("set_project", {"project_id": project_id, "changes": changes})

    def add_note(self, project_id: int, name: str, contents: str) -> None:
        """Add a note to a project."""
        note = {"name": name, "contents": contents}
        self._service.ask("set_project", {"project_id": project_id, "add_note": note})

    def remove_note(self, project_id: int, name: str) -> None:
        """Remove all notes of a name from a project."""
        self._service.ask("set_project", {"project_id": project_id, "remove_note": name})

    def delete_project(self, project_id: int) -> None:
        """Remove an empty project."""
        self._service.ask("delete_project", {"project_id": project_id})
