"""Projects: experiments that belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from determined.experimental._client.enums import (
    AnyOrder,
    ExperimentSortBy,
    is_descending,
    sort_key,
)
from determined.experimental._client.experiment import Experiment
from determined.experimental._client.session import Session
from determined.experimental._client.stored import StoredObject

if TYPE_CHECKING:
    from determined.store import Project as Record

__all__ = ["Project"]


class Project(StoredObject):
    """A project of a workspace.

    Attributes:
        id: Its id.
        name: Its name, which is unique in its workspace.
        description: Its description.
        key: A short name for it.
        notes: A list of dicts with `name` and `contents`.
        archived: Whether it is archived: it takes no new experiments.
        n_experiments: How many experiments it has.
        n_active_experiments: How many of them have not ended.
        workspace_id: The workspace it belongs to.
        username: Who created it.
    """

    def __init__(self, project_id: int, session: Session) -> None:
        self._session = session
        self._hydrate(session.workspaces.project_of_id(project_id))

    def _hydrate(self, record: Record) -> None:
        self.id = record.id
        self.name = record.name
        self.description = record.description
        self.key = record.key
        self.notes = [dict(note) for note in record.notes]
        self.archived = record.archived
        self.workspace_id = record.workspace_id
        self.username = record.owner
        counts = self._session.workspaces.counts(record.id)
        self.n_experiments, self.n_active_experiments = counts

    def _identity(self) -> int:
        return self.id

    def _facts(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "workspace_id": self.workspace_id,
            "n_experiments": self.n_experiments,
        }

    def reload(self) -> None:
        """Read the current values."""
        self._hydrate(self._session.workspaces.project_of_id(self.id))

    def list_experiments(
        self, sort_by: ExperimentSortBy | None = None, order_by: AnyOrder | None = None
    ) -> list[Experiment]:
        """List its experiments.

        Args:
            sort_by: What to sort by; default: the id.
            order_by: Ascending or descending.
        """
        from determined.store import ExperimentFilter, Order

        order = Order(sort_key(sort_by, ExperimentSortBy), is_descending(order_by))
        where = ExperimentFilter(project_id=self.id)
        rows = self._session.service.reader.experiments(where, order).rows
        return [Experiment._of(record, self._session) for record in rows]

    def set_name(self, name: str) -> None:
        """Set its name."""
        self._change(name=name)

    def set_description(self, description: str) -> None:
        """Set its description."""
        self._change(description=description)

    def set_key(self, key: str) -> None:
        """Set its short name."""
        self._change(key=key)

    def archive(self) -> None:
        """Archive it: it takes no new experiments."""
        self._change(archived=True)

    def unarchive(self) -> None:
        """Unarchive it."""
        self._change(archived=False)

    def add_note(self, name: str, contents: str) -> None:
        """Add a note."""
        self._session.workspaces.add_note(self.id, name, contents)
        self.reload()

    def remove_note(self, name: str) -> None:
        """Remove the notes with this name."""
        self._session.workspaces.remove_note(self.id, name)
        self.reload()

    def _change(self, **changes: Any) -> None:
        self._session.workspaces.change_project(self.id, **changes)
        self.reload()
