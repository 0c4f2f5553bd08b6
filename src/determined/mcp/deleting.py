"""Tools that delete; they exist only if the server was started with `--allow-delete`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from determined.platform.service import Service


class DeletingTools:
    """Deletes what has ended; what is registered or still needed is refused."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def actors(self) -> tuple[Callable[..., Any], ...]:
        """All of them."""
        return (self.delete_experiments, self.delete_checkpoints)

    def delete_experiments(
        self, experiment_ids: Annotated[list[int], Field(min_length=1, max_length=100)]
    ) -> dict[str, Any]:
        """Delete experiments that have ended, with metrics, logs and checkpoints: all or none."""
        self._service.delete_experiments(experiment_ids)
        return {"deleted": experiment_ids}

    def delete_checkpoints(
        self, uuids: Annotated[list[str], Field(min_length=1, max_length=100)]
    ) -> dict[str, Any]:
        """Delete the files of checkpoints that are not registered and that no trial needs."""
        gone = self._service.delete_checkpoints(uuids)
        return {"deleted": [checkpoint.uuid for checkpoint in gone]}
