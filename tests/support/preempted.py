"""A training script that sends itself a signal.

For example `python -m tests.support.preempted SIGTERM train 4`.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import torch
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.pytorch import Batch, DataLoader, PyTorchCallback, PyTorchTrialContext
from tests.support.trials import DropoutNet

LENGTH = 12
INIT: dict[str, Any] = {"seed": 7, "run_id": "preempted", "aggregation_frequency": 2}
FIT: dict[str, Any] = {
    "max_length": Batch(LENGTH),
    "validation_period": Batch(3),
    "reporting_period": Batch(5),
    "checkpoint_policy": "none",
    "latest_checkpoint": "latest",
}


class PreemptedTrial(pytorch.PyTorchTrial):
    """Draws random numbers in training and validation, and tells of its shutdown."""

    signals: tuple[int, ...] = ()
    phase = "train"
    at = -1

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(DropoutNet())
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        self.batches: list[tuple[int, list[float]]] = []
        self.validations: list[tuple[int, float]] = []

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"teller": _Teller(self)}

    def build_training_data_loader(self) -> DataLoader:
        x = torch.arange(10.0).reshape(-1, 1)
        return DataLoader(TensorDataset(x, x), batch_size=2, shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return self.build_training_data_loader()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        self._signal_if("train", batch_idx)
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        self.batches.append((batch_idx, x.flatten().tolist()))
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        if batch_idx == 1:
            self._signal_if("validate", self.context.current_train_batch())
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        return {"validation_loss": loss + torch.rand(())}

    def _signal_if(self, phase: str, batch_idx: int) -> None:
        if (phase, batch_idx) == (self.phase, self.at):
            for number in self.signals:
                os.kill(os.getpid(), number)

    def weights(self) -> list[float]:
        return [value for p in self.model.parameters() for value in p.flatten().tolist()]


class _Teller(PyTorchCallback):
    def __init__(self, trial: PreemptedTrial) -> None:
        self._trial = trial

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        batches_trained = self._trial.context.current_train_batch() + 1
        self._trial.validations.append((batches_trained, float(metrics["validation_loss"])))

    def on_trial_shutdown(self) -> None:
        sys.stdout.write("shut down\n")
        sys.stdout.flush()


def main(names: str = "", phase: str = "train", at: str = "-1") -> PreemptedTrial:
    """Train until the end or the signal; `names` are joined by commas."""
    numbers = tuple(signal.Signals[name] for name in names.split(",") if name)
    trial_class = type(
        "PreemptedTrial", (PreemptedTrial,), {"signals": numbers, "phase": phase, "at": int(at)}
    )
    with pytorch.init(**INIT) as context:
        trial: PreemptedTrial = trial_class(context)
        pytorch.Trainer(trial, context).fit(**FIT)
        sys.stdout.write("left fit\n")
    return trial


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.write("left init\n")
