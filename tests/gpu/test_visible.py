"""Which GPUs the variables of CUDA leave to a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.gpu import get_gpu_uuids
from tests.support.fake_gpus import FakeGpu, Nvidia, install_nvidia

_THREE = tuple(FakeGpu(f"GPU-{name}") for name in ("aa11", "ab22", "cc33"))


@pytest.fixture
def nvidia(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nvidia:
    return install_nvidia(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, ["GPU-aa11", "GPU-ab22", "GPU-cc33"]),
        ("2,0", ["GPU-cc33", "GPU-aa11"]),
        (" 1 , GPU-cc33", ["GPU-ab22", "GPU-cc33"]),
        ("GPU-c", ["GPU-cc33"]),  # as short as is unique
        ("GPU-a,0", []),  # not unique
        ("1,-1,0", ["GPU-ab22"]),
        ("1,NoDevFiles,0", ["GPU-ab22"]),
        ("0,7,1", ["GPU-aa11"]),
        ("0,1,0", []),  # CUDA shows none if one is repeated
        ("0,GPU-aa11", []),
        ("", []),
    ],
)
def test_a_list_limits_and_orders_as_for_cuda(
    nvidia: Nvidia, monkeypatch: pytest.MonkeyPatch, limit: str | None, expected: list[str]
) -> None:
    nvidia.has(*_THREE)
    before = nvidia.users
    if limit is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", limit)
    assert get_gpu_uuids() == expected
    assert nvidia.users == before  # closed again


def test_numbers_of_unlike_gpus_are_questioned(
    nvidia: Nvidia, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nvidia.has(FakeGpu("GPU-aa11"), FakeGpu("GPU-ab22", model="Fake-200"))
    for order, limit in (("PCI_BUS_ID", "0"), ("FASTEST_FIRST", "GPU-aa11")):
        monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", limit)
        assert get_gpu_uuids() == ["GPU-aa11"]
    assert caplog.text == ""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert get_gpu_uuids() == ["GPU-aa11"]
    assert "CUDA_VISIBLE_DEVICES=0: these numbers are taken in the order of PCI" in caplog.text
