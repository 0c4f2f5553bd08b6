"""Each check finds what it is there to find: something is broken, and it says so."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from determined.pytorch import PyTorchExperimentalContext, PyTorchTrialContext
from determined.pytorch._checkpoint.state.snapshot import _Copying
from determined.selftest._result import DoesNotHoldError, NotRunError
from determined.selftest.checks import amp, devices, overhead, saving
from tests.support.fake_gpus import FakeGpu, install_nvidia

_CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_devices_that_torch_cannot_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.devices(_CPU, tmp_path).startswith("1: cpu")
    install_nvidia(tmp_path, monkeypatch).has(FakeGpu("GPU-aa"), FakeGpu("GPU-bb"))
    with pytest.raises(DoesNotHoldError, match="lists 2: GPU-aa, GPU-bb, but torch .* built for C"):
        devices.devices(_CPU, tmp_path)


def test_mixed_precision_that_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amp, "_BATCHES", 2)
    monkeypatch.setattr(PyTorchExperimentalContext, "use_amp", lambda self, dtype: None)
    with pytest.raises(DoesNotHoldError, match="under bfloat16 computed in torch.float32"):
        amp.amp(_CPU, tmp_path)


def test_mixed_precision_that_does_not_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amp, "_BATCHES", 20)
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self, closure=None: None)
    with pytest.raises(DoesNotHoldError, match="in bfloat16 the loss went from"):
        amp.amp(_CPU, tmp_path)


@pytest.mark.slow
def test_checkpoints_of_other_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "_WIDTH", 1000)
    fill = _Copying._fill

    def fill_doubled(self: Any, buffer: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        return fill(self, buffer, tensor * 2)

    monkeypatch.setattr(_Copying, "_fill", fill_doubled)
    with pytest.raises(DoesNotHoldError, match="the checkpoint of batch .* has another scale than"):
        saving.saving(_CPU, tmp_path)


def test_a_loop_that_costs_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "_LAST", 24)
    monkeypatch.setattr(overhead, "_ROUNDS", 1)
    step = PyTorchTrialContext.step_optimizer

    def slow(self: PyTorchTrialContext, *arguments: Any, **others: Any) -> None:
        time.sleep(0.1)
        step(self, *arguments, **others)

    monkeypatch.setattr(PyTorchTrialContext, "step_optimizer", slow)
    threads = torch.get_num_threads()
    try:
        monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.5, 0.5))
        with pytest.raises(DoesNotHoldError, match="us per batch, a plain loop .* us: [+]"):
            overhead.overhead(_CPU, tmp_path)
        monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 1000.0, 1000.0))
        with pytest.raises(NotRunError, match=r"the machine has more to do \(load 1000, "):
            overhead.overhead(_CPU, tmp_path)
    finally:
        torch.set_num_threads(threads)
