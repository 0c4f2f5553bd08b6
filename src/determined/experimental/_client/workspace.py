"""Workspaces: projects that belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from determined.experimental._client.project import Project
from determined.experimental._client.session import Session
from determined.experimental._client.stored import StoredObject

if TYPE_CHECKING:
    from determined.store import Workspace as Record

__all__ = ["ResourcePool", "Workspace"]


@dataclass(frozen=True)
class ResourcePool:
    """Where trials run: here, the slots of this machine."""

    name: str


class Workspace(StoredObject):
    """A workspace.

    Attributes:
        id: Its id.
        name: Its name, which is unique.
        archived: Whether it is archived: it takes no new projects.
    """

    def __init__(
        self,
        session: Session,
        workspace_id: int | None = None,
        workspace_name: str | None = None,
    ) -> None:
        if (workspace_id is None) == (workspace_name is None):
            raise ValueError("Give exactly one of `workspace_id` and `workspace_name`.")
        self._session = session
        if workspace_id is None:
            self._hydrate(session.workspaces.named(str(workspace_name)))
        else:
            self._hydrate(session.workspaces.of_id(workspace_id))

    def _hydrate(self, record: Record) -> None:
        self.id = record.id
        self.name = record.name
        self.archived = record.archived

    def _identity(self) -> int:
        return self.id

    def _facts(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name}

    def reload(self) -> None:
        """Read the current values."""
        self._hydrate(self._session.workspaces.of_id(self.id))

    def create_project(self, name: str, description: str | None = None) -> Project:
        """Create a project in it."""
        record = self._session.workspaces.create_project(self.id, name, description or "")
        return Project._of(record, self._session)

    def get_project(self, name: str) -> Project:
        """Return its project with this name."""
        return Project._of(self._session.workspaces.project(self.name, name), self._session)

    def list_projects(self) -> list[Project]:
        """List its projects."""
        records = self._session.workspaces.projects(self.id)
        return [Project._of(record, self._session) for record in records]

    def delete_project(self, name: str) -> None:
        """Delete an empty project."""
        self._session.workspaces.delete_project(self.get_project(name).id)

    def list_pools(self) -> list[ResourcePool]:
        """List the resource pools: there is only one."""
        return [ResourcePool("default")]
