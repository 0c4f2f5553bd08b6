"""Models and their versions: commands and queries, for every client."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Mapping
from typing import Any

from determined.errors import NotFoundError
from determined.platform.service._service import Service
from determined.platform.service.checkpoint_metadata import json_values
from determined.store import Model, ModelVersion


class ModelRegistry:
    """The registered models of a home. Registered checkpoints are never deleted."""

    def __init__(self, service: Service) -> None:
        self._service = service

    # Queries

    def models(self) -> list[Model]:
        """All models, by id."""
        return self._service.reader.registry.models() if self._service.has_store else []

    def model(self, name_or_id: str | int) -> Model:
        """A model by its name or its id."""
        wanted = str(name_or_id)
        for model in self.models():
            if wanted in (model.name, str(model.id)):
                return model
        raise NotFoundError(f"There is no model {wanted!r}. `det model list` shows all.")

    def versions(self, model_id: int) -> list[ModelVersion]:
        """The versions of a model, newest first."""
        return self._service.reader.registry.versions(model_id)

    def version(self, model: Model, number: int) -> ModelVersion:
        """A version of a model."""
        for version in self.versions(model.id):
            if version.number == number:
                return version
        raise NotFoundError(
            f"Model {model.name!r} has no version {number}. `det model list-versions` shows all."
        )

    # Commands

    def create(
        self,
        name: str,
        *,
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        labels: Iterable[str] = (),
        workspace_id: int = 1,
    ) -> Model:
        """Add a model; names are unique."""
        arguments = {
            "name": name,
            "owner": getpass.getuser(),
            "description": description,
            "metadata": json_values(metadata or {}),
            "labels": list(dict.fromkeys(labels)),
            "workspace_id": workspace_id,
        }
        return self.model(self._service.ask("create_model", arguments)["id"])

    def change(self, model_id: int, **changes: Any) -> None:
        """Set the description, labels, archived or workspace_id."""
        self._service.ask("set_model", {"model_id": model_id, "changes": changes})

    def label(self, model_id: int, text: str, *, remove: bool = False) -> None:
        """Give a model a label, or take it away."""
        verb = "remove_label" if remove else "add_label"
        self._service.ask("set_model", {"model_id": model_id, verb: text})

    def add_metadata(self, model_id: int, metadata: Mapping[str, Any]) -> None:
        """Add keys at the top level, or replace their values."""
        self._service.ask(
            "set_model", {"model_id": model_id, "add_metadata": json_values(metadata)}
        )

    def remove_metadata(self, model_id: int, keys: Iterable[str]) -> None:
        """Remove keys at the top level; those that are not there do not matter."""
        self._service.ask("set_model", {"model_id": model_id, "remove_metadata": list(keys)})

    def delete(self, model_id: int) -> None:
        """Remove a model and its versions; the checkpoints stay, no longer protected."""
        self._service.ask("delete_model", {"model_id": model_id})

    def register(self, model_id: int, checkpoint_uuid: str) -> ModelVersion:
        """Make a checkpoint the next version of a model; it is safe from then on."""
        uuid = self._service.checkpoint(checkpoint_uuid).uuid
        arguments = {"model_id": model_id, "checkpoint_uuid": uuid}
        number = self._service.ask("register_version", arguments)["number"]
        return self.version(self.model(model_id), number)

    def change_version(self, version_id: int, **changes: Any) -> None:
        """Set the name, notes or comment of a version."""
        self._service.ask("set_version", {"version_id": version_id, "changes": changes})

    def delete_version(self, version_id: int) -> None:
        """Remove a version; the checkpoint stays, no longer protected by it."""
        self._service.ask("delete_version", {"version_id": version_id})
