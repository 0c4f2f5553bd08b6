"""Checkpoints of batch processing: how far it came, and what the reducers have collected."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import pathlib

from determined._contracts.checkpoint_layout import METADATA
from determined.core import Context
from determined.errors import CheckpointNotFound, InvalidCheckpointException
from determined.storage import CheckpointInUseError

logger = logging.getLogger("determined.pytorch")

_SLOT_FILE = "reducers/slot_{}.pth"


@dataclasses.dataclass(frozen=True)
class Position:
    """How far a run has come."""

    output_uuid: str
    steps_completed: int = 0
    """Batches of each rank."""
    batches_completed: int = 0
    """Batches over all ranks; they are the first ones of the dataset."""
    slots: tuple[bytes, ...] = ()
    """What the reducers of each slot hold; there may be more slots than ranks are left now."""


class BatchCheckpoints:
    """Finds, reads and writes the checkpoints of one run."""

    def __init__(self, core_context: Context, run_id: str, batch_size: int) -> None:
        self._core = core_context
        self._run_id = run_id
        self._batch_size = batch_size
        self.latest: str | None = None

    def save(self, position: Position) -> None:
        """Write a checkpoint, on the chief. A run on its own keeps only its newest."""
        metadata = {
            "steps_completed": position.steps_completed,
            "default_output_uuid": position.output_uuid,
            "run_id": self._run_id,
            "batches_completed": position.batches_completed,
            "batch_size": self._batch_size,
        }
        with self._core.checkpoint.store_path(metadata) as (path, storage_id):
            completed = {"batch_completed": position.steps_completed}
            (path / "batch_completed.json").write_text(json.dumps(completed))
            for index, state in enumerate(position.slots):
                file = path / _SLOT_FILE.format(index)
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(state)
        if self.latest is not None and self._core.info is None:
            with contextlib.suppress(CheckpointInUseError):
                self._core.checkpoint.delete(self.latest)
        self.latest = storage_id

    def find(self, name: str | os.PathLike[str] | None) -> Position | None:
        """Return the position to continue from, on every rank; None: from the beginning."""
        info = self._core.info
        if name is None and info is not None:
            name = info.latest_checkpoint
        if name is None:
            return None
        storage_id = name if isinstance(name, str) else str(pathlib.Path(name).absolute())
        try:
            storage_id = self._core.checkpoint.resolve(storage_id, self._run_id)
        except CheckpointNotFound as error:
            self._log(f"{error} Processing starts from the beginning.")
            return None
        self._log(f"Continuing from checkpoint {storage_id}.")
        with self._core.checkpoint.restore_path(storage_id) as path:
            return self._read(path)

    def _log(self, message: str) -> None:
        if self._core.distributed.rank == 0:
            logger.info(message)

    def _read(self, path: pathlib.Path) -> Position:
        try:
            metadata = json.loads((path / METADATA).read_text())
            steps, output_uuid = int(metadata["steps_completed"]), metadata["default_output_uuid"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InvalidCheckpointException(
                f"{path} is not a checkpoint of torch_batch_process: {error!r}."
            ) from error
        batch_size = metadata.get("batch_size", self._batch_size)
        if batch_size != self._batch_size:
            raise ValueError(
                f"`batch_size` must be {batch_size}, as in the checkpoint to continue from, got "
                f"{self._batch_size}: batches would have other records."
            )
        slots: list[bytes] = []
        while (file := path / _SLOT_FILE.format(len(slots))).is_file():
            slots.append(file.read_bytes())
        batches = metadata.get("batches_completed", steps * self._core.distributed.size)
        return Position(str(output_uuid), steps, int(batches), tuple(slots))
