"""test_one_batch: a quick try of a trial class."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import determined.experimental
from determined import pytorch

_CONFIG: dict[str, Any] = {
    "hyperparameters": {
        "global_batch_size": {"type": "const", "val": 4},
        "lr": {"type": "log", "base": 10, "minval": -3, "maxval": -1},
    }
}


class LineTrial(pytorch.PyTorchTrial):
    """Fits a line; counts what it is asked to do."""

    calls: list[str] = []

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr"))
        )
        assert context.get_per_slot_batch_size() == 4
        assert context.get_experiment_config()["scheduling_unit"] == 1

    def build_training_data_loader(self) -> pytorch.DataLoader:
        data = torch.utils.data.TensorDataset(torch.arange(16.0).reshape(16, 1))
        return pytorch.DataLoader(data, batch_size=self.context.get_per_slot_batch_size())

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.calls.append("train")
        loss = self.model(batch[0]).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self.calls.append("validate")
        return {"loss": self.model(batch[0]).square().mean()}


def test_one_batch_is_trained_validated_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # so that TMPDIR is read again
    monkeypatch.chdir(tmp_path)
    LineTrial.calls = []
    determined.experimental.test_one_batch(LineTrial, _CONFIG)
    assert LineTrial.calls == ["train", "validate"]
    assert "LineTrial trained and validated on one batch" in caplog.text
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not Path(os.environ["DET_STORAGE"]).exists()


class BrokenTrial(LineTrial):
    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        raise KeyError("mine")


def test_errors_of_the_trial_come_out() -> None:
    with pytest.raises(KeyError, match="mine"):
        determined.experimental.test_one_batch(BrokenTrial, _CONFIG)


def test_there_is_nothing_else_in_the_package() -> None:
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = determined.experimental.absent
