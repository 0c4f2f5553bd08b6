"""The registry of models: names for checkpoints that are to stay."""

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
from determined.experimental._client.stored import StoredObject, moment

if TYPE_CHECKING:
    from determined.store import Model as Record
    from determined.store import ModelVersion as VersionRecord

__all__ = ["Model", "ModelOrderBy", "ModelSortBy", "ModelVersion"]


class ModelVersion(StoredObject):
    """A registered checkpoint, which nothing deletes as long as it is registered.

    Attributes:
        model_version: Its number: 1, 2, ...; one that was deleted is never used again.
        model_version_id: Its id among the versions of all models.
        model_name: The model's name.
        model_id: The model's id.
        checkpoint: The `Checkpoint`.
        metadata: What is kept with the version.
        name: What the version is called.
        comment: A word on it.
        notes: What people wrote about it.
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
        self.creation_time = moment(record.created)

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
        """Read the values again."""
        self._hydrate(self._session.registry.version(self._model._record, self.model_version))

    def set_name(self, name: str) -> None:
        """Name the version."""
        self._session.registry.change_version(self.model_version_id, name=name)
        self.reload()

    def set_notes(self, notes: str) -> None:
        """Write about the version."""
        self._session.registry.change_version(self.model_version_id, notes=notes)
        self.reload()

    def delete(self) -> None:
        """Remove the version; the checkpoint stays, no longer protected by it."""
        self._session.registry.delete_version(self.model_version_id)

    def iter_metrics(self, group: str | None = None) -> Iterable[TrialMetrics]:
        """Yield the metrics of trials that said they use this version."""
        identifier = f"{self.model_name}:{self.model_version}"
        return reports_of_users(self._session, "model_version", identifier, group)


class Model(StoredObject):
    """A name under which checkpoints are registered, one version after the other.

    Attributes:
        name: Its name, which is unique.
        model_id: Its number.
        description: What it is for.
        creation_time: When it was made.
        last_updated_time: When it, or a version of it, was changed.
        metadata: What is kept with it.
        labels: A list of texts.
        username: Who made it.
        workspace_id: The workspace it belongs to.
        archived: Whether it takes no new versions.
    """

    def __init__(self, name_or_id: str | int, session: Session) -> None:
        self._session = session
        self._hydrate(session.registry.model(name_or_id))

    def _hydrate(self, record: Record) -> None:
        self._record = record
        self.name = record.name
        self.model_id = record.id
        self.description = record.description
        self.creation_time = moment(record.created)
        self.last_updated_time = moment(record.updated)
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
        """Read the values again."""
        self._hydrate(self._session.registry.model(self.model_id))

    def get_version(self, version: int = -1) -> ModelVersion | None:
        """A version; -1 means the newest, None if there is none yet."""
        if version != -1:
            return ModelVersion(self, version, self._session)
        return next(iter(self.list_versions()), None)

    def list_versions(self, order_by: AnyOrder = OrderBy.DESCENDING) -> list[ModelVersion]:
        """Its versions, newest first."""
        newest_first = is_descending(order_by)
        records = self._session.registry.versions(self.model_id)
        ordered = records if newest_first else reversed(records)
        return [ModelVersion._of_model(self, record) for record in ordered]

    @deprecated("Model.list_versions()")
    def get_versions(self, order_by: AnyOrder = OrderBy.DESCENDING) -> list[ModelVersion]:
        """Its versions."""
        return self.list_versions(order_by)

    def register_version(self, checkpoint_uuid: str) -> ModelVersion:
        """Make a checkpoint the next version; nothing deletes it from then on."""
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
            raise ValueError(f"`keys` must be a list of texts, got one: {keys!r}.")
        self._session.registry.remove_metadata(self.model_id, keys)
        self.reload()

    def set_labels(self, labels: list[str]) -> None:
        """Give it these labels and no others."""
        if isinstance(labels, str):
            raise ValueError(f"`labels` must be a list of texts, got one: {labels!r}.")
        self._change(labels=list(dict.fromkeys(labels)))

    def set_description(self, description: str) -> None:
        """Say what it is for."""
        self._change(description=description)

    def move_to_workspace(self, workspace_name: str) -> None:
        """Move it to another workspace."""
        self._change(workspace_id=self._session.workspaces.named(workspace_name).id)

    def archive(self) -> None:
        """Let it take no new versions."""
        self._change(archived=True)

    def unarchive(self) -> None:
        """Use it again."""
        self._change(archived=False)

    def delete(self) -> None:
        """Remove it and its versions; their checkpoints stay, no longer protected."""
        self._session.registry.delete(self.model_id)

    def _change(self, **changes: Any) -> None:
        self._session.registry.change(self.model_id, **changes)
        self.reload()
