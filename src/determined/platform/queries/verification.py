"""Whether the files of a checkpoint are what was saved: every byte, against manifest and record."""

from __future__ import annotations

from dataclasses import dataclass

from determined.errors import CheckpointError, CheckpointNotFound, InvalidCheckpointException
from determined.platform.queries.downloads import storage_of
from determined.store import Checkpoint, Experiment

_METADATA = "metadata.json"  # may be edited after the save


@dataclass(frozen=True)
class Verified:
    """What was found about one checkpoint; `problem` is empty if it is intact."""

    checkpoint: Checkpoint
    has_hashes: bool
    problem: str = ""


def verify(checkpoint: Checkpoint, experiment: Experiment) -> Verified:
    """Read all files of a checkpoint and compare hashes, names and sizes."""
    if checkpoint.state not in ("COMPLETED", "PARTIALLY_DELETED"):
        return Verified(checkpoint, False, f"it is {checkpoint.state}")
    storage = storage_of(checkpoint, experiment)
    try:
        has_hashes = storage.verify(checkpoint.uuid)
        found = storage.resources(checkpoint.uuid)
    except CheckpointNotFound:
        return Verified(checkpoint, False, f"there is nothing of it in {storage.location}")
    except (InvalidCheckpointException, CheckpointError) as error:
        return Verified(
            checkpoint, True, str(error).removeprefix(f"Checkpoint {checkpoint.uuid}: ")
        )
    return Verified(checkpoint, has_hashes, _difference(checkpoint.resources, found))


def _difference(recorded: dict[str, int], found: dict[str, int]) -> str:
    for name, size in recorded.items():
        if name.endswith("/"):
            continue
        if name not in found:
            return f"{name} is missing"
        if found[name] != size and name != _METADATA:
            return f"{name} has {found[name]:,} bytes instead of {size:,}"
    return ""
