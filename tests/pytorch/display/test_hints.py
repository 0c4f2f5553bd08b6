"""Errors tell where the user's code failed, on which batch, and what to look at."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from determined import pytorch
from determined.pytorch import DataLoader
from tests.support.loader_waits import loader_waits, until_waited_for  # noqa: F401  # a fixture
from tests.support.trials import LineTrial, train

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 has no notes on exceptions; they are logged"
)


def _failure(trial_class: type[LineTrial], storage: Path) -> str:
    with pytorch.init(checkpoint_storage=storage) as context:
        trainer = pytorch.Trainer(trial_class(context), context)
        with pytest.raises(RuntimeError) as caught:
            trainer.fit(max_length=pytorch.Batch(4))
    return "".join(traceback.format_exception(caught.value))


class _WrongShape(LineTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, _ = batch
        return self.model(torch.cat([x, x], dim=1)).sum()


def test_a_shape_mismatch_shows_the_batch_and_the_first_layer(tmp_path: Path) -> None:
    said = _failure(_WrongShape, tmp_path)
    assert "In your code:" in said
    assert "train_batch: return self.model(torch.cat([x, x], dim=1)).sum()" in said
    assert "The last batch started was batch 0." in said
    assert "[0]: (2, 1) float32" in said
    assert "Linear(in_features=1" in said


class _ThirdBatchFails(LineTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx == 2:
            raise RuntimeError("Expected all tensors to be on the same device")
        return super().train_batch(batch, epoch_idx, batch_idx)


def test_a_device_mismatch_names_the_device_to_use(tmp_path: Path) -> None:
    said = _failure(_ThirdBatchFails, tmp_path)
    assert "The last batch started was batch 2." in said
    assert "device=self.context.device" in said


class _CannotStartAThread(LineTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        raise RuntimeError("can't start new thread")


def test_a_thread_that_cannot_start_points_at_memory_and_limits(tmp_path: Path) -> None:
    said = _failure(_CannotStartAThread, tmp_path)
    assert "memory" in said
    assert "ulimit -u" in said


class _FailsInValidation(LineTrial):
    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        raise RuntimeError("something of the user's own")


def test_an_unknown_error_gets_the_place_but_no_guess(tmp_path: Path) -> None:
    said = _failure(_FailsInValidation, tmp_path)
    assert "evaluate_batch: raise RuntimeError" in said
    assert "Hint" not in said


class _FailsInAHelper(LineTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        return self._loss(batch)

    def _loss(self, batch: Any) -> Any:
        raise RuntimeError("deep down")


def test_every_line_of_the_users_code_is_named_the_innermost_last(tmp_path: Path) -> None:
    said = _failure(_FailsInAHelper, tmp_path)
    locations = [line for line in said.splitlines() if line.startswith("In your code:")]
    assert len(locations) == 2
    assert "train_batch: return self._loss(batch)" in locations[0]
    assert '_loss: raise RuntimeError("deep down")' in locations[1]


class _Deadly(Dataset[Any]):
    """Ends the worker process that reads its third sample."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            until_waited_for(2)
            os.kill(os.getpid(), self._number)
        return torch.ones(1), torch.ones(1)


@pytest.mark.multiprocess
@pytest.mark.usefixtures("loader_waits")
@pytest.mark.parametrize(
    ("number", "hint"),
    [(signal.SIGBUS, "--shm-size"), (signal.SIGKILL, "ran out of memory")],
)
def test_a_worker_that_dies_of_memory_says_what_to_change(
    tmp_path: Path, number: int, hint: str
) -> None:
    class Trial(LineTrial):
        def build_training_data_loader(self) -> DataLoader:
            return DataLoader(_Deadly(number), batch_size=1, num_workers=1, timeout=60)

    said = _failure(Trial, tmp_path)
    assert "lost a worker process" in said
    assert hint in said


class _TurnsToNaN(LineTrial):
    num_batches = 10

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = super().train_batch(batch, epoch_idx, batch_idx)["loss"]
        return {"fine": loss, "loss": loss * float("nan") if batch_idx >= 5 else loss}


def test_a_loss_that_turns_to_nan_is_warned_of_once_with_its_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    train(_TurnsToNaN, max_length=pytorch.Batch(10), reporting_period=pytorch.Batch(2))
    warnings = [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and "training metric" in record.getMessage()
    ]
    assert len(warnings) == 1
    assert "'loss' is nan since batch 5." in warnings[0]
    assert "LossGuard" in warnings[0]
