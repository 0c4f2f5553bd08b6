"""A training script as the platform starts it; `python -m tests.support.managed [BATCH]`.

At the given batch it is asked to stop, by its control file.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.journal import Control
from determined.pytorch import Batch, DataLoader, PyTorchTrialContext
from tests.support.trials import DropoutNet

LENGTH = 12


class ManagedTrial(pytorch.PyTorchTrial):
    """Draws random numbers in training, and can have itself preempted."""

    stop_at = -1

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(DropoutNet())
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))

    def build_training_data_loader(self) -> DataLoader:
        x = torch.arange(10.0).reshape(-1, 1)
        return DataLoader(TensorDataset(x, x), batch_size=2, shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return self.build_training_data_loader()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        if batch_idx == self.stop_at:
            Control(preempt=True, reason="paused").write(Path(os.environ["DET_RUN_DIR"]))
            while not self.context._core.preempt.preempt_requested_locally():
                time.sleep(0.01)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        return {"validation_loss": torch.nn.functional.mse_loss(self.model(x), y)}


def main(stop_at: int) -> None:
    """Train; the digest of the weights is printed only if training came to its end."""
    ManagedTrial.stop_at = stop_at
    with pytorch.init() as context:
        trial = ManagedTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(LENGTH), validation_period=Batch(3), reporting_period=Batch(2)
        )
    weights = b"".join(p.detach().numpy().tobytes() for p in trial.model.parameters())
    print(f"finished {hashlib.sha256(weights).hexdigest()}")  # noqa: T201  # the test reads it


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else -1)
