"""The model registry: models and their versions, which are protected checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from determined.experimental._client.checkpoint import Checkpoint
from determined.experimental._client.deprecation import deprecated
from determined.experimental._client.enums import (
    AnyOrder,
    ModelOrderBy,
    ModelSortBy,
    OrderBy,
    is_descending,
)
from determined.experimental._client.metrics import TrialMetrics, reports_of_users
from determined.experimental._client.session import Session
from determined.experimental._client.stored import StoredObject, as_datetime

if TYPE_CHECKING:
    from determined.store import Model as Record
    from determined.store import ModelVersion as VersionRecord

__all__ = ["Model", "ModelOrderBy", "ModelSortBy", "ModelVersion"]


class ModelVersion(StoredObject):
    """A registered checkpoint, protected from deletion while it is registered.

    Attributes:
        model_version: Its number: 1, 2, ...; numbers of deleted versions are not reused.
        model_version_id: Its id, unique across all models.
        model_name: The model's name.
        model_id: The model's id.
        checkpoint: The `Checkpoint`.
        metadata: The version's metadata.
        name: The version's name.
        comment: A short comment.
        notes: Free-form notes.
        creation_time: When it was registered.
    """

    def __init__(self, model: Model, version: int, session: Session) -> None:
        self._session = session
        self._model = model
        self._hydrate(session.registry.version(model._record, version))

    @classmethod
    def _of_model(cls, model: Model, record: VersionRecord) -> ModelVersion:
        made = cls.__new__(cls)
        made._session, made._model = model._session, model
        made._hydrate(record)
        return made

    def _hydrate(self, record: VersionRecord) -> None:
        self.model_version = record.number
        self.model_version_id = record.id
        self.model_name = self._model.name
        self.model_id = record.model_id
        self.checkpoint = Checkpoint(record.checkpoint_uuid, self._session)
        self.metadata = dict(record.metadata)
        self.name = record.name
        self.comment = record.comment
        self.notes = record.notes
        self.creation_time = as_datetime(record.created)

    def _identity(self) -> int:
        return self.model_version_id

    def _facts(self) -> dict[str, Any]:
        return {
            "model_name": self.model_name,
            "model_version": self.model_version,
            "checkpoint": self.checkpoint.uuid,
            "name": self.name,
        }

    def reload(self) -> None:
        """Read the current values."""
        self._hydrate(self._session.registry.version(self._model._record, self.model_version))

    def set_name(self, name: str) -> None:
        """Set the version's name."""
        self._session.registry.change_version(self.model_version_id, name=name)
        self.reload()

    def set_notes(self, notes: str) -> None:
        """Set the version's notes."""
        self._session.registry.change_version(self.model_version_id, notes=notes)
        self.reload()

    def delete(self) -> None:
        """Delete the version; its checkpoint stays, but is no longer protected by it."""
        self._session.registry.delete_version(self.model_version_id)

    def iter_metrics(self, group: str | None = None) -> Iterable[TrialMetrics]:
        """Yield the metrics of trials that reported using this version."""
        identifier = f"{self.model_name}:{self.model_version}"
        return reports_of_users(self._session, "model_version", identifier, group)


class Model(StoredObject):
    """A model in the registry: a name with numbered versions, each a registered checkpoint.

    Attributes:
        name: Its name, which is unique.
        model_id: Its id.
        description: Its description.
        creation_time: When it was created.
        last_updated_time: When it or one of its versions last changed.
        metadata: Its metadata.
        labels: A list of labels.
        username: Who created it.
        workspace_id: The workspace it belongs to.
        archived: Whether it is archived: hidden from lists, no new versions.
    """

    def __init__(self, name_or_id: str | int, session: Session) -> None:
        self._session = session
        self._hydrate(session.registry.model(name_or_id))

    def _hydrate(self, record: Record) -> None:
        self._record = record
        self.name = record.name
        self.model_id = record.id
        self.description = record.description
        self.creation_time = as_datetime(record.created)
        self.last_updated_time = as_datetime(record.updated)
        self.metadata = dict(record.metadata)
        self.labels = list(record.labels)
        self.username = record.owner
        self.workspace_id = record.workspace_id
        self.archived = record.archived

    def _identity(self) -> int:
        return self.model_id

    def _facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "model_id": self.model_id,
            "description": self.description,
            "labels": self.labels,
            "metadata": self.metadata,
        }

    def reload(self) -> None:
        """Read the current values."""
        self._hydrate(self._session.registry.model(self.model_id))

    def get_version(self, version: int = -1) -> ModelVersion | None:
        """Return a version; -1 is the newest. Returns None if there is none yet."""
        if version != -1:
            return ModelVersion(self, version, self._session)
        return next(iter(self.list_versions()), None)

    def list_versions(self, order_by: AnyOrder = OrderBy.DESCENDING) -> list[ModelVersion]:
        """List its versions, newest first."""
        newest_first = is_descending(order_by)
        records = self._session.registry.versions(self.model_id)
        ordered = records if newest_first else reversed(records)
        return [ModelVersion._of_model(self, record) for record in ordered]

    @deprecated("Model.list_versions()")
    def get_versions(self, order_by: AnyOrder = OrderBy.DESCENDING) -> list[ModelVersion]:
        """List its versions."""
        return self.list_versions(order_by)

    def register_version(self, checkpoint_uuid: str) -> ModelVersion:
        """Register a checkpoint as the next version, which protects it from deletion."""
        record = self._session.registry.register(self.model_id, checkpoint_uuid)
        self.reload()
        return ModelVersion._of_model(self, record)

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add keys at the top level, or replace their values."""
        self._session.registry.add_metadata(self.model_id, metadata)
        self.reload()

    def remove_metadata(self, keys: list[str]) -> None:
        """Remove keys at the top level."""
        if isinstance(keys, str):
            raise ValueError(f"`keys` must be a list of strings, got one string: {keys!r}.")
        self._session.registry.remove_metadata(self.model_id, keys)
        self.reload()

    def set_labels(self, labels: list[str]) -> None:
        """Replace its labels."""
        if isinstance(labels, str):
            raise ValueError(f"`labels` must be a list of strings, got one string: {labels!r}.")
        self._change(labels=list(dict.fromkeys(labels)))

    def set_description(self, description: str) -> None:
        """Set its description."""
        self._change(description=description)

    def move_to_workspace(self, workspace_name: str) -> None:
        """Move it to another workspace."""
        self._change(workspace_id=self._session.workspaces.named(workspace_name).id)

    def archive(self) -> None:
        """Archive it: it takes no new versions."""
        self._change(archived=True)

    def unarchive(self) -> None:
        """Unarchive it."""
        self._change(archived=False)

    def delete(self) -> None:
        """Delete it and its versions; their checkpoints stay, but are no longer protected."""
        self._session.registry.delete(self.model_id)

    def _change(self, **changes: Any) -> None:
        self._session.registry.change(self.model_id, **changes)
        self.reload()
