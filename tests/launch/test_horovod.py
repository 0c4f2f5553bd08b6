"""Configurations that start trial classes with the old launcher run unchanged."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.lab import Lab, lab
from tests.support.line_trial import MODEL

__all__ = ["lab"]

LAUNCHER = "determined.launch.horovod"


def launch(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", LAUNCHER, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.multiprocess
@pytest.mark.slow
def test_a_trial_class_trains_on_all_its_slots(lab: Lab) -> None:
    experiment_id = lab.create(
        MODEL.replace("context = context\n", "context = context\n        print('here')\n"),
        entrypoint=f"python3 -m {LAUNCHER} -v -- --autohorovod --trial script:Line",
        hyperparameters={"lr": 0.1, "global_batch_size": 4},
        searcher={"name": "single", "metric": "loss", "max_length": {"batches": 4}},
        resources={"slots_per_trial": 2},
    )
    ended = lab.wait(experiment_id)
    log = lab.log(lab.runs(experiment_id)[0])
    assert ended.state == "COMPLETED", log
    assert "[rank=1] here" in log
    assert "torch_distributed --trial script:Line" in log


def test_a_script_runs_on_one_slot_and_is_refused_on_more() -> None:
    assert launch("--autohorovod", sys.executable, "-c", "raise SystemExit(3)").returncode == 3
    refused = launch("python3", "train.py")
    assert refused.returncode == 1
    assert "Horovod is not part of this library" in refused.stderr
    assert launch("--autohorovod").returncode == 2
