"""GPUs are found through the drivers' own interfaces, here those of drivers that tests make."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from determined.gpu import Gpu, find_gpus, get_gpu_processes, get_gpu_uuids
from tests.support.fake_gpus import FakeGpu, Nvidia, install_nvidia

_THREE = tuple(FakeGpu(f"GPU-{name}") for name in ("aa11", "ab22", "cc33"))
_MIG = FakeGpu("GPU-dd44", mig=("MIG-0001", "", "MIG-0002", "MIG-0113"))


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nvidia:
    return install_nvidia(tmp_path, monkeypatch)


def test_a_machine_without_a_driver_has_none() -> None:
    assert find_gpus() == [] == get_gpu_uuids()


def test_a_driver_without_gpus_or_one_that_fails_has_none(
    nvidia: Nvidia, caplog: pytest.LogCaptureFixture
) -> None:
    assert find_gpus() == []
    assert caplog.text == ""
    nvidia.fails()
    assert find_gpus() == []
    assert "NVIDIA's driver cannot list GPUs: nvmlInit_v2: Driver Not Loaded" in caplog.text


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, ["GPU-aa11", "MIG-0001", "MIG-0002", "MIG-0113", "GPU-cc33"]),
        ("1", ["MIG-0001", "MIG-0002", "MIG-0113"]),
        ("GPU-dd44,0", ["MIG-0001", "MIG-0002", "MIG-0113", "GPU-aa11"]),
        ("MIG-0002,MIG-0001", ["MIG-0002", "MIG-0001"]),
        ("MIG-01", ["MIG-0113"]),
        ("MIG-GPU-dd44/3/0,2", ["MIG-0002", "GPU-cc33"]),  # the form of older drivers
        ("MIG-00", []),
        ("1,MIG-0001", []),
    ],
)
def test_a_gpu_in_mig_mode_is_its_mig_devices(
    nvidia: Nvidia, monkeypatch: pytest.MonkeyPatch, limit: str | None, expected: list[str]
) -> None:
    nvidia.has(_THREE[0], _MIG, _THREE[2])
    if limit is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", limit)
    assert get_gpu_uuids() == expected


def test_processes_are_those_of_the_gpu_or_of_its_part(nvidia: Nvidia) -> None:
    many = tuple(range(1000, 1150))  # more than the first answer has room for
    nvidia.has(
        FakeGpu("GPU-aa11", pids=(7,), mps=(8, 7)),
        FakeGpu("GPU-dd44", mig=("MIG-0001", "MIG-0002"), pids={"MIG-0002": (9,)}),
        FakeGpu("GPU-cc33"),
        FakeGpu("GPU-ee55", pids=many),
    )
    assert get_gpu_processes() == {
        "GPU-aa11": [7, 8],
        "MIG-0002": [9],
        "GPU-ee55": list(many),
    }


def test_a_lost_gpu_is_left_out_and_the_others_keep_their_numbers(
    nvidia: Nvidia, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nvidia.has(FakeGpu("GPU-aa11"), FakeGpu("GPU-ab22", is_lost=True), FakeGpu("GPU-cc33"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert get_gpu_uuids() == ["GPU-cc33"]
    assert "GPU 1 is not used: nvmlDeviceGetHandleByIndex_v2: GPU is lost" in caplog.text


def test_the_gpu_of_an_apple_computer_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert find_gpus() == [Gpu("mps", "mps", "mps")]
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert find_gpus() == []
