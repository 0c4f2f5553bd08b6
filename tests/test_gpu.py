"""Listing GPUs through the vendor's tool, here a script of that name."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.gpu import get_gpu_uuids
from tests.support.tools import install


@pytest.fixture(autouse=True)
def _no_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)


def test_there_are_none_without_a_tool() -> None:
    assert get_gpu_uuids() == []


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["GPU-aa", "GPU-bb", "GPU-cc"]),
        ("2,0", ["GPU-cc", "GPU-aa"]),
        ("GPU-b", ["GPU-bb"]),
        ("1,-1,0", ["GPU-bb"]),
        ("7", []),
        ("", []),
    ],
)
def test_visible_devices_limit_and_order_the_list(
    visible: str | None, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "nvidia-smi", "printf 'GPU-aa\\nGPU-bb\\nGPU-cc\\n'", monkeypatch)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert get_gpu_uuids() == expected


def test_the_other_vendor_is_asked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "rocm-smi", "printf 'device,Unique ID\\ncard0,0x1\\n'", monkeypatch)
    assert get_gpu_uuids() == ["0x1"]


def test_a_failing_tool_means_no_gpus_and_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, "nvidia-smi", "exit 9", monkeypatch)
    assert get_gpu_uuids() == []
    assert "nvidia-smi is installed but" in caplog.text
