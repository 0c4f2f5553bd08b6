"""A training script that waits for a signal in one of its phases.

`python -m tests.support.signalled FOLDER PHASE` writes its process id to `FOLDER/ready` when it
gets there, and goes on when it is told to stop, or when there is a file `FOLDER/go`. With several
ranks one of them is chosen to do so.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from determined import pytorch
from determined.core._checkpoint import CheckpointContext
from determined.pytorch import Batch, DataLoader
from determined.storage import Manifest, SharedFSStorageManager
from tests.support.resumable import ResumableTrial, Trained, fingerprint

LENGTH = 8
PATIENCE_SECONDS = 20.0


class Moment:
    """The first time that the phase is reached in this process."""

    def __init__(self, folder: Path, phase: str, context: pytorch.PyTorchTrialContext) -> None:
        self._folder = folder
        self._phase = phase
        self._is_signalled = context._core.preempt.preempt_requested_locally
        self._is_over = False

    def reach(self, phase: str) -> None:
        if phase != self._phase or self._is_over:
            return
        self._is_over = True
        (self._folder / "pid").write_text(str(os.getpid()))
        (self._folder / "pid").rename(self._folder / "ready")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._is_signalled() and not (self._folder / "go").exists():
            assert time.monotonic() < deadline, "no signal came"
            time.sleep(0.002)


class SignalledTrial(ResumableTrial):
    moment: Moment

    def build_training_data_loader(self) -> DataLoader:
        self.moment.reach("loader start")
        return super().build_training_data_loader()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.moment.reach("first step" if batch_idx == 0 else f"batch {batch_idx}")
        return super().train_batch(batch, epoch_idx, batch_idx)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if self.context.current_train_batch() > 0:
            self.moment.reach("validation")
        return super().evaluate_batch(batch, batch_idx)


class SignalledStorage(SharedFSStorageManager):
    """Has the moment `save` when all files of a checkpoint are written but not yet visible."""

    moment: Moment

    def post_store_path(self, *args: Any, **kwargs: Any) -> Manifest:
        self.moment.reach("save")
        return super().post_store_path(*args, **kwargs)


def main(folder: str, phase: str = "none", rank: int = 0) -> Trained:
    root = Path(folder)
    with pytorch.init(
        seed=7,
        run_id="run",
        aggregation_frequency=2,
        checkpoint_storage=root / "storage",
        enable_tensorboard_logging=False,
    ) as context:
        storage = SignalledStorage(root / "storage")
        context._core.checkpoint = CheckpointContext(context.distributed, storage)
        trial = SignalledTrial(context)
        is_chosen = context.distributed.rank == rank
        trial.moment = storage.moment = Moment(root, phase if is_chosen else "none", context)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(LENGTH),
            checkpoint_period=Batch(3),
            validation_period=Batch(4),
            checkpoint_policy="none",
            latest_checkpoint="latest",
        )
    return fingerprint(trial)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
