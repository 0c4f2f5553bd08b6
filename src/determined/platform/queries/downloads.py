"""Download a checkpoint into a folder: completely, or not at all.

`metadata.json` is there only once everything else is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import uuid as uuids
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from determined._contracts.checkpoint_layout import MANIFEST, METADATA
from determined.errors import CheckpointStateException, InvalidCheckpointException
from determined.storage import Contents, FileDigest, Manifest, StorageManager, build
from determined.store import Checkpoint, Experiment

_READABLE = ("COMPLETED", "PARTIALLY_DELETED")


def download(checkpoint: Checkpoint, storage: StorageManager, target: Path) -> Path:
    """Copy a checkpoint into the folder `target`, unless all of it is there already.

    Its metadata is taken from the record, which may have been edited since the save.
    """
    if checkpoint.state not in _READABLE:
        raise CheckpointStateException(
            f"Checkpoint {checkpoint.uuid} is {checkpoint.state}: it cannot be downloaded."
        )
    if not (target / METADATA).exists() or missing_files(checkpoint, target):
        _fetch(checkpoint, storage, target)
    if not _holds(target / METADATA, checkpoint.metadata):
        write_metadata(target, checkpoint.metadata)
    return target


def _fetch(checkpoint: Checkpoint, storage: StorageManager, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    stage = target.with_name(f".{target.name}.{uuids.uuid4()}")
    try:
        storage.download(checkpoint.uuid, stage)
        if missing := missing_files(checkpoint, stage):
            raise InvalidCheckpointException(
                f"Checkpoint {checkpoint.uuid} in {storage.location} is incomplete: "
                f"{', '.join(missing[:5])} missing or of a different size than recorded."
            )
        _move(stage, target)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def write_metadata(folder: Path, metadata: Mapping[str, Any]) -> None:
    """Write the metadata of a downloaded checkpoint and its checksum, so that it still loads."""
    text = json.dumps(metadata, indent=2).encode()
    manifest = folder / MANIFEST
    if manifest.exists():
        known = Manifest.from_json(manifest.read_bytes(), folder.name)
        digest = FileDigest(len(text), hashlib.sha256(text).hexdigest())
        contents = known.contents.merged_with(Contents({METADATA: digest}))
        _replace(manifest, dataclasses.replace(known, contents=contents).to_json())
    _replace(folder / METADATA, text)


def _holds(path: Path, metadata: Mapping[str, Any]) -> bool:
    try:
        return bool(json.loads(path.read_bytes()) == metadata)
    except (OSError, ValueError):
        return False


def _replace(path: Path, text: bytes) -> None:
    draft = path.with_name(f".{path.name}.{uuids.uuid4()}")
    try:
        draft.write_bytes(text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def missing_files(checkpoint: Checkpoint, folder: Path) -> list[str]:
    """The files of a checkpoint that a folder does not have in their recorded size."""
    # Metadata may be edited after the save; the files it describes may not.
    files = {n: s for n, s in checkpoint.resources.items() if not n.endswith("/")}
    return [
        name
        for name, size in files.items()
        if not (folder / name).is_file()
        or (name != METADATA and (folder / name).stat().st_size != size)
    ]


def storage_of(checkpoint: Checkpoint, experiment: Experiment) -> StorageManager:
    """The storage that holds a checkpoint."""
    return build(checkpoint.storage or experiment.checkpoint_storage)


def _move(stage: Path, target: Path) -> None:
    """Move files into place, the metadata last: where it exists, the checkpoint is complete."""
    if not target.exists():
        stage.replace(target)
        return
    (target / METADATA).unlink(missing_ok=True)
    files = [path for path in sorted(stage.rglob("*")) if path.is_file()]
    for path in sorted(files, key=lambda path: path.name == METADATA):
        place = target / path.relative_to(stage)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)
