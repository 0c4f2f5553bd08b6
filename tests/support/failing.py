"""A training script that goes wrong: `python -m tests.support.failing "1 train raise" ...`.

Each fault is a rank, a moment of the run, and `raise`, `refuse` (InvalidHP), `kill`, `stop`
(SIGSTOP, until the file FAILING_END is there) or `sleep`, or nothing more where the moment says
it all.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from determined import InvalidHP, pytorch
from determined.pytorch import Batch, DataLoader, MetricReducer, PyTorchCallback
from tests.support.ranked import NetTrial, records


class BadError(Exception):
    """What the failing rank raises."""


class Faults:
    """Goes wrong when the moment comes on the chosen rank."""

    def __init__(self, *faults: str) -> None:
        self._faults = [[*fault.split(), ""][:3] for fault in faults]

    def at(self, where: str, context: Any) -> bool:
        """Act if this is the moment; say so if nothing in particular is to be done."""
        for rank, moment, how in self._faults:
            if moment == where and context.distributed.rank == int(rank):
                self._act(where, how)
                return True
        return False

    def _act(self, where: str, how: str) -> None:
        if how == "raise":
            raise BadError(f"bad {where}")
        if how == "refuse":
            raise InvalidHP(f"bad {where}")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stop":
            _stop_and_be_killed()
        if how == "sleep":
            _sleep_in_user_code()


def _stop_and_be_killed() -> None:
    """Stop until the other rank has ended, which leaves a file, or for too long a time."""
    stopped, end = os.getpid(), Path(os.environ["FAILING_END"])
    if os.fork() == 0:
        os.kill(stopped, signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while not end.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(stopped, signal.SIGKILL)
        os._exit(0)
    time.sleep(60)


def _sleep_in_user_code() -> None:
    time.sleep(100)


class _Reducer(MetricReducer):
    def __init__(self, trial: FailingTrial) -> None:
        self.trial = trial

    def reset(self) -> None:
        pass

    def per_slot_reduce(self) -> int:
        self.trial.fault.at("reducer", self.trial.context)
        return 1

    def cross_slot_reduce(self, per_slot_metrics: list[int]) -> int:
        return sum(per_slot_metrics)


class _Callback(PyTorchCallback):
    def __init__(self, trial: FailingTrial) -> None:
        self.trial = trial

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        self.trial.fault.at("startup", self.trial.context)

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self.trial.fault.at("callback", self.trial.context)

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        self.trial.fault.at("save", self.trial.context)

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.trial.fault.at("uploaded", self.trial.context)


class FailingTrial(NetTrial):
    """Trains, validates and saves every other batch."""

    def __init__(self, context: pytorch.PyTorchTrialContext, fault: Faults) -> None:
        self.fault = fault
        self.context = context
        fault.at("init", context)
        super().__init__(context)
        context.wrap_reducer(_Reducer(self), "count")
        if fault.at("models", context):
            context.wrap_model(nn.Linear(1, 1))

    def build_model(self) -> nn.Module:
        # Several buckets of gradients, so that some are under way when a rank fails.
        layers = [nn.Linear(600, 600) for _ in range(4)]
        return nn.Sequential(nn.Linear(4, 600), *layers, nn.BatchNorm1d(600), nn.Linear(600, 3))

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"fault": _Callback(self)}

    def build_training_data_loader(self) -> DataLoader:
        length = 0 if self.fault.at("loader", self.context) else 40
        return DataLoader(records(length), 4)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 3:
            self.fault.at("train", self.context)
        ids, x, y = batch
        loss = nn.functional.cross_entropy(self.model(x), y)
        if batch_idx == 3:
            weight: Any = self.model.get_parameter("3.weight")
            weight.register_hook(self._in_backward)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        if batch_idx == 3 and self.fault.at("names", self.context):
            return {"lost": loss}
        return {"loss": loss}

    def _in_backward(self, gradient: torch.Tensor) -> None:
        self.fault.at("backward", self.context)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 1:
            self.fault.at("evaluate", self.context)
        metrics = super().evaluate_batch(batch, batch_idx)
        return {"lost": 0.0} if self.fault.at("validation_names", self.context) else metrics


def main(*faults: str) -> None:
    fault = Faults(*faults)
    with pytorch.init(seed=1, enable_tensorboard_logging=False) as context:
        trial = FailingTrial(context, fault)
        length = 7 if fault.at("length", context) else 8
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(length),
            validation_period=Batch(2),
            checkpoint_period=Batch(2),
            checkpoint_policy="none",
        )
    sys.stdout.write("finished\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
