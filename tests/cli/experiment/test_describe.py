"""`det experiment describe`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.det import run_det, told_by
from tests.cli.scripts import FAILING, STEPS
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_an_experiment_that_has_not_begun_can_be_described(lab: Lab) -> None:
    number = lab.create(STEPS, paused=True)
    assert "PAUSED" in told_by("e", "describe", str(number), "--metrics")
    told_by("e", "describe", str(number), "--metrics", "--csv")
    told_by("t", "describe", "1")
    assert told_by("t", "logs", "1") == ""
    lab.service.kill(number)


def test_a_failed_trial_shows_its_traceback_and_its_log(lab: Lab) -> None:
    number = lab.create(FAILING)
    lab.wait(number)
    for words in (["e", "describe", "1"], ["t", "describe", "1"]):
        told = told_by(*words)
        assert "    ValueError: the third layer is missing" in told
        assert "in train" in told
        assert "Its log: det trial logs 1" in told
    answer = run_det("e", "wait", "1")
    assert answer.returncode == 1
    assert "Experiment 1 is ERROR" in answer.stdout


def test_the_python_that_is_shown_loads_the_best_trial(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "line"
    folder.mkdir()
    shutil.copy(Path(__file__).parents[2] / "docs" / "line.py", folder)
    (folder / "config.yaml").write_text(
        "name: line\nentrypoint: line:Line\nmax_restarts: 0\n"
        "searcher: {name: single, metric: error, max_length: {batches: 4}}\n"
    )
    told = told_by("e", "create", str(folder / "config.yaml"), str(folder), "-f")
    lines = told[told.index("In Python:  ") :].splitlines()[:2]
    code = [line.removeprefix("In Python:").strip() for line in lines]
    script = "\n".join([*code, "print(trial.model.weight.shape)"])
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True
    )
    assert answer.stdout == "torch.Size([1, 1])\n"
