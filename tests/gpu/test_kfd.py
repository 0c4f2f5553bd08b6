"""GPUs of AMD."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_gpus import install_amd


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ["GPU-00000000000000aa 0", "GPU-00000000000000bb 1 [77]", "GPU-1003 2"]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, ["GPU-1003 2", "GPU-00000000000000aa 0"]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ["GPU-00000000000000bb 1 [77]"]),
        (
            {"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"},
            ["GPU-00000000000000aa 0"],
        ),
        # HIP's numbers count what ROCr leaves.
        (
            {"ROCR_VISIBLE_DEVICES": "2,GPU-00000000000000bb", "HIP_VISIBLE_DEVICES": "1,0"},
            ["GPU-00000000000000bb 1 [77]", "GPU-1003 0"],
        ),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
    ],
)
def test_gpus_of_amd_are_found_as_rocm_finds_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    expected: list[str],
) -> None:
    install_amd(tmp_path, monkeypatch, [0xAA, 0xBB, 0], {1: 77})
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code = (
        "from determined.gpu import find_gpus\n"
        "for g in find_gpus(): print(g.uuid, g.name, *([list(g.pids)] if g.pids else []))"
    )
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == expected
