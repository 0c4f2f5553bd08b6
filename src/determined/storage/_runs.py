"""The runs whose checkpoints a storage holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from determined.storage._base import StorageManager, StoredCheckpoint


@dataclass(frozen=True)
class StoredRun:
    """The complete checkpoints of one run, in the order of their saves."""

    run_id: str
    checkpoints: tuple[StoredCheckpoint, ...]

    @property
    def newest(self) -> StoredCheckpoint:
        """The checkpoint saved last."""
        return self.checkpoints[-1]

    @property
    def batches(self) -> int:
        """How far the newest checkpoint is."""
        return self.newest.manifest.steps_completed or 0

    @property
    def size_bytes(self) -> int:
        """The sum over all files; those that checkpoints share count each time."""
        return sum(
            sum(checkpoint.manifest.contents.resources.values()) for checkpoint in self.checkpoints
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the run recorded about itself: `script`, `trial`, `arguments`, `seed`, `hparams`."""
        facts = self.newest.metadata.get("run")
        return facts if isinstance(facts, Mapping) else {}


def list_runs(storage: StorageManager) -> list[StoredRun]:
    """Return the runs of a storage, the one that saved last first."""
    found: dict[str, list[StoredCheckpoint]] = {}
    for checkpoint in sorted(storage.list(), key=lambda c: c.manifest.sequence):
        if checkpoint.run_id is not None:
            found.setdefault(checkpoint.run_id, []).append(checkpoint)
    runs = [StoredRun(run_id, tuple(checkpoints)) for run_id, checkpoints in found.items()]
    return sorted(runs, key=lambda run: run.newest.manifest.sequence, reverse=True)
