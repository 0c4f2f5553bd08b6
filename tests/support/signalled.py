"""A training script that waits for a signal in one of its phases.

`python -m tests.support.signalled FOLDER PHASE` writes its process id to `FOLDER/ready` when it
gets there, and goes on when it is told to stop (unless there is a file `FOLDER/hold`; it writes
`FOLDER/heard`), or when there is a file `FOLDER/go`. With several ranks one of them is chosen.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from determined import pytorch
from determined.core._checkpoint import CheckpointContext
from determined.pytorch import Batch, DataLoader, PyTorchCallback
from determined.storage import Manifest, SharedFSStorageManager
from tests.support.resumable import ResumableTrial, Trained, fingerprint

LENGTH = 8
TIMEOUT_SECONDS = 20.0
_PHASES = {0: "first step", LENGTH - 1: "last batch"}


class SignalPoint:
    """The first time that the phase is reached in this process."""

    def __init__(self, folder: Path, phase: str, context: pytorch.PyTorchTrialContext) -> None:
        self.folder = folder
        self._phase = phase
        self._is_signalled = context._core.preempt.preempt_requested_locally
        self._is_over = False

    def reach(self, phase: str) -> None:
        if phase != self._phase or self._is_over:
            return
        self._is_over = True
        (self.folder / "pid").write_text(str(os.getpid()))
        (self.folder / "pid").rename(self.folder / "ready")
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (self.folder / "go").exists():
            if self._is_signalled():
                (self.folder / "heard").touch()
                if not (self.folder / "hold").exists():
                    break
            assert time.monotonic() < deadline, "no signal came"
            time.sleep(0.002)


@dataclasses.dataclass(frozen=True)
class Ending:
    """What a run came to, with the batches trained and the metric of each validation."""

    trained: Trained
    validations: tuple[tuple[int, float], ...]

    def continues(self, unbroken: Ending, batches_trained: int) -> bool:
        """Return whether this is what was left of the unbroken run after so many batches."""
        to_come = [v for v in unbroken.validations if v[0] > batches_trained]
        return (
            len(self.trained.losses) == LENGTH - batches_trained
            and self.trained.ends_like(unbroken.trained)
            and len(self.validations) >= len(to_come)
            and unbroken.validations[len(unbroken.validations) - len(self.validations) :]
            == self.validations
        )


class _Teller(PyTorchCallback):
    """Notes validations, and says when the run shuts down."""

    def __init__(self, trial: SignalledTrial) -> None:
        self._trial = trial
        self.validations: list[tuple[int, float]] = []

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        batches_trained = self._trial.context.current_train_batch() + 1
        self.validations.append((batches_trained, float(metrics["error"])))

    def on_trial_shutdown(self) -> None:
        say(self._trial.point.folder, "shut down")


class SignalledTrial(ResumableTrial):
    """Draws random numbers in validations too."""

    point: SignalPoint

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        self.teller = _Teller(self)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {**super().build_callbacks(), "teller": self.teller}

    def build_training_data_loader(self) -> DataLoader:
        self.point.reach("loader start")
        return super().build_training_data_loader()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.point.reach(_PHASES.get(batch_idx, f"batch {batch_idx}"))
        return super().train_batch(batch, epoch_idx, batch_idx)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if self.context.current_train_batch() > 0:
            self.point.reach("validation")
        metrics = super().evaluate_batch(batch, batch_idx)
        return {"error": metrics["error"] + torch.rand(())}


class SignalledStorage(SharedFSStorageManager):
    """Has the moment `save` when all files of a checkpoint are written but not yet visible."""

    point: SignalPoint

    def post_store_path(self, *args: Any, **kwargs: Any) -> Manifest:
        self.point.reach("save")
        return super().post_store_path(*args, **kwargs)


def say(folder: Path, line: str) -> None:
    with (folder / "said").open("a") as file:
        file.write(f"{line}\n")


def main(folder: str, phase: str = "none", rank: int = 0) -> Ending:
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
        trial.point = storage.point = SignalPoint(root, phase if is_chosen else "none", context)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(LENGTH),
            checkpoint_period=Batch(3),
            validation_period=Batch(4),
            checkpoint_policy="none",
            latest_checkpoint="latest",
        )
        say(root, "left fit")
    return Ending(fingerprint(trial), tuple(trial.teller.validations))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
    say(Path(sys.argv[1]), "left init")
