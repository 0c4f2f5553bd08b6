"""Checkpoints: lists, and downloads as archives."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from starlette.responses import Response, StreamingResponse
from typing_extensions import TypedDict

from determined.dashboard.archives import tar_of
from determined.dashboard.endpoints.endpoints import ApiError, Routes
from determined.dashboard.endpoints.parameters import Id, Limit, Offset, Uuid
from determined.dashboard.view import View
from determined.platform.queries.outcome import folder_of, load_lines
from determined.platform.service import NotFoundError
from determined.store import Checkpoint, CheckpointFilter, Experiment

routes = Routes("checkpoints")

_READABLE = ("COMPLETED", "PARTIALLY_DELETED")


class RegisteredJson(TypedDict):
    model: str
    version: int


class CheckpointJson(TypedDict):
    """A checkpoint; `metric` is the searcher's metric in the validation at its step."""

    uuid: str
    trial_id: int | None
    experiment_id: int | None
    state: str
    steps: int
    size: int
    metric: float | None
    time: float
    files: dict[str, int]
    storage: str
    registered: list[RegisteredJson]
    load: str


class CheckpointsJson(TypedDict):
    total: int
    rows: list[CheckpointJson]


@routes.get("/experiments/{id}/checkpoints")
def of_experiment(view: View, id: Id, limit: Limit = 100, offset: Offset = 0) -> CheckpointsJson:
    """The checkpoints of an experiment, newest first."""
    return _page(view, view.experiment(id), CheckpointFilter(experiment_id=id), limit, offset)


@routes.get("/trials/{id}/checkpoints")
def of_trial(view: View, id: Id, limit: Limit = 100, offset: Offset = 0) -> CheckpointsJson:
    """The checkpoints of a trial, newest first."""
    owner = view.experiment(view.trial(id).experiment_id)
    return _page(view, owner, CheckpointFilter(trial_id=id), limit, offset)


def _page(
    view: View, owner: Experiment, wanted: CheckpointFilter, limit: int, offset: int
) -> CheckpointsJson:
    with view.reader.snapshot():
        total, found = view.reader.tables.checkpoints(wanted, limit, offset)
        models = {model.id: model.name for model in view.reader.registry.models()}
        rows = [
            checkpoint_json(view, owner, checkpoint, value, models) for checkpoint, value in found
        ]
    return {"total": total, "rows": rows}


def checkpoint_json(
    view: View,
    owner: Experiment,
    checkpoint: Checkpoint,
    value: float | None,
    models: dict[int, str],
) -> CheckpointJson:
    """A checkpoint with its location and the model versions it is registered as."""
    folder = folder_of(checkpoint, owner)
    section = checkpoint.storage or owner.config.get("checkpoint_storage", {})
    return {
        "uuid": checkpoint.uuid,
        "trial_id": checkpoint.trial_id,
        "experiment_id": checkpoint.experiment_id,
        "state": checkpoint.state,
        "steps": checkpoint.steps_completed,
        "size": checkpoint.size,
        "metric": value,
        "time": checkpoint.report_time,
        "files": checkpoint.resources,
        "storage": str(folder) if folder else str(section.get("type", "")),
        "registered": [
            {"model": models[version.model_id], "version": version.number}
            for version in view.reader.registry.versions_of_checkpoint(checkpoint.uuid)
        ],
        "load": load_lines(checkpoint, folder),
    }


@routes.get("/checkpoints/{uuid}/download", "application/x-tar")
def download(view: View, uuid: Uuid) -> Response:
    """A checkpoint as a tar archive."""
    checkpoint = view.reader.checkpoint(uuid) if view.has_store else None
    if checkpoint is None or checkpoint.experiment_id is None:
        raise NotFoundError(f"There is no checkpoint {uuid}.")
    if checkpoint.state not in _READABLE:
        raise ApiError(409, f"Checkpoint {uuid} is {checkpoint.state}: it cannot be downloaded.")
    folder = folder_of(checkpoint, view.experiment(checkpoint.experiment_id))
    if folder is not None:
        if not folder.is_dir():
            raise ApiError(404, f"The files of checkpoint {uuid} no longer exist: {folder}.")
        return _archive(tar_of(folder, uuid), uuid)
    return _archive(_fetched(view, checkpoint), uuid)


def _fetched(view: View, checkpoint: Checkpoint) -> Iterator[bytes]:
    """A checkpoint from a remote storage, downloaded to a temporary folder first."""
    place = Path(tempfile.mkdtemp(prefix="det-download-"))
    try:
        folder = view.service.download(checkpoint, place / checkpoint.uuid)
        yield from tar_of(folder, checkpoint.uuid)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _archive(content: Iterator[bytes], name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}.tar"'}
    return StreamingResponse(content, media_type="application/x-tar", headers=headers)
