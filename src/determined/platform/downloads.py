"""Bring a checkpoint to a folder of the user's: whole, or not at all."""

from __future__ import annotations

import shutil
import uuid as uuids
from pathlib import Path

from determined.errors import CheckpointStateException, InvalidCheckpointException
from determined.storage import StorageManager, build
from determined.store import Checkpoint, Experiment

_METADATA = "metadata.json"  # there only once everything else is
_READABLE = ("COMPLETED", "PARTIALLY_DELETED")


def download(checkpoint: Checkpoint, storage: StorageManager, target: Path) -> Path:
    """Copy a checkpoint into the folder `target`, unless all of it is there already."""
    if checkpoint.state not in _READABLE:
        raise CheckpointStateException(
            f"Checkpoint {checkpoint.uuid} is {checkpoint.state}: it cannot be downloaded."
        )
    if (target / _METADATA).exists() and not missing_files(checkpoint, target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    stage = target.with_name(f".{target.name}.{uuids.uuid4()}")
    try:
        storage.download(checkpoint.uuid, stage)
        if missing := missing_files(checkpoint, stage):
            raise InvalidCheckpointException(
                f"Checkpoint {checkpoint.uuid} in {storage.location} is not whole: "
                f"{', '.join(missing[:5])} missing or of another size than recorded."
            )
        _move(stage, target)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return target


def missing_files(checkpoint: Checkpoint, folder: Path) -> list[str]:
    """The files of a checkpoint that a folder does not have in their recorded size."""
    # Metadata may be edited after the save; the files it describes may not.
    files = {n: s for n, s in checkpoint.resources.items() if not n.endswith("/")}
    return [
        name
        for name, size in files.items()
        if not (folder / name).is_file()
        or (name != _METADATA and (folder / name).stat().st_size != size)
    ]


def storage_of(checkpoint: Checkpoint, experiment: Experiment) -> StorageManager:
    """The storage that holds a checkpoint."""
    return build(checkpoint.storage or experiment.config["checkpoint_storage"])


def _move(stage: Path, target: Path) -> None:
    """Put files in place, the metadata last: whoever sees it sees a whole checkpoint."""
    if not target.exists():
        stage.replace(target)
        return
    (target / _METADATA).unlink(missing_ok=True)
    files = [path for path in sorted(stage.rglob("*")) if path.is_file()]
    for path in sorted(files, key=lambda path: path.name == _METADATA):
        place = target / path.relative_to(stage)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
