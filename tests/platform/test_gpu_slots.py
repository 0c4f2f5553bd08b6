"""Experiments on a machine with GPUs: trials get them as the machine's owner allows."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from determined.errors import RefusedError
from tests.support.fake_gpus import FakeGpu, install_nvidia
from tests.support.lab import Lab, lab  # noqa: F401  # a fixture

pytestmark = pytest.mark.slow

# Says what it sees, once as many of its kind run as there is room for.
_SCRIPT = """
import os, pathlib, time
folder = pathlib.Path({folder!r})
(folder / os.environ["DET_TRIAL_ID"]).touch()
deadline = time.monotonic() + 60
while len(list(folder.iterdir())) < {together}:
    assert time.monotonic() < deadline
    time.sleep(0.02)
import determined as det
info = det.get_cluster_info()
print("sees", os.environ["CUDA_VISIBLE_DEVICES"], *info.gpu_uuids, os.environ.get("KIND"))
"""


def test_trials_share_the_gpus_of_an_inherited_list(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvidia = install_nvidia(tmp_path, monkeypatch)
    nvidia.has(
        FakeGpu("GPU-aa"),
        FakeGpu("GPU-bb", pids=(1,)),  # somebody computes on it
        FakeGpu("GPU-cc", mig=("MIG-1", "MIG-2")),
        FakeGpu("GPU-dd"),
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2,1,0")  # of this shell, and of what it starts
    folder = tmp_path / "now"
    folder.mkdir()
    search = {"name": "random", "metric": "loss", "max_trials": 4, "max_concurrent_trials": 4}
    experiment = lab.create(
        _SCRIPT.format(folder=str(folder), together=4),
        searcher=search,
        resources={"trials_per_slot": 2},
        environment={"environment_variables": {"cuda": ["KIND=cuda"], "cpu": ["KIND=cpu"]}},
    )
    assert lab.wait(experiment).state == "COMPLETED", lab.account()
    logs = [lab.log(run).rpartition("sees ")[2].split() for run in lab.runs(experiment)]
    assert collections.Counter(map(tuple, logs)) == {
        ("MIG-2", "MIG-2", "cuda"): 2,
        ("GPU-aa", "GPU-aa", "cuda"): 2,
    }
    left_out = "GPU 1 (GPU-bb) is not used: process 1 is running on it."
    assert left_out in lab.home.supervisor_log.read_text()
    with pytest.raises(RefusedError, match="slots_per_trial is 2, but slots of this machine are M"):
        lab.create("pass", resources={"slots_per_trial": 2})
    none = lab.create("import os; print('sees', os.environ)", resources={"slots_per_trial": 0})
    assert lab.wait(none).state == "COMPLETED", lab.account()
    (run,) = lab.runs(none)
    assert "'CUDA_VISIBLE_DEVICES': ''" in lab.log(run)
