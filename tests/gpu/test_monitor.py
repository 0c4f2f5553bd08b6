"""Load and memory of GPUs, sampled."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.core._system_metrics import build_collectors
from tests.support.fake_gpus import FakeGpu, Nvidia, install_nvidia


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nvidia:
    return install_nvidia(tmp_path, monkeypatch)


def test_the_monitor_samples_every_gpu(nvidia: Nvidia, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia.has(FakeGpu("GPU-aa11", busy=83, free=5), FakeGpu("GPU-dd44", mig=("MIG-0001",), free=6))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # of this process: it says nothing of the others
    assert build_collectors()["gpu"]() == {
        "GPU-aa11": {"gpu_util": 83, "gpu_free_memory": 5},
        "GPU-dd44": {"gpu_free_memory": 6},
    }
    nvidia.has()
    assert "gpu" not in build_collectors()
