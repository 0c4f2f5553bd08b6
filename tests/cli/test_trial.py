"""`det trial` on real trials."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.det import det_on_a_terminal, run_det, told_by
from tests.cli.scripts import ENDLESS, STEPS
from tests.support.lab import Lab
from tests.support.saving import is_collected

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_a_trial_is_described_with_runs_and_decisions(lab: Lab) -> None:
    number = lab.create(
        STEPS,
        searcher={"name": "random", "metric": "loss", "max_trials": 1},
        hyperparameters={"lr": {"type": "double", "minval": 0.1, "maxval": 0.9}},
    )
    lab.wait(number)
    told = told_by("t", "describe", "1")
    assert "Hyperparameters:\n  lr: 0." in told
    assert "Decisions of the search:\n" in told
    assert "a random sample" in told
    assert "| finished" in told
    data = json.loads(told_by("t", "describe", "1", "--json"))
    assert data["summary_metrics"]["avg_metrics"]["zero"]["max"] == 0
    assert [run["exit_code"] for run in data["runs"]] == [0]
    kinds = [kind for step in data["workloads"] for kind in step]
    assert (kinds.count("training"), kinds.count("validation")) == (20, 2)
    assert kinds[-1] == "checkpoint"
    assert data["workloads"][-1]["checkpoint"]["state"] == "STATE_COMPLETED"
    assert data["totalBatchesProcessed"] == 20
    page = json.loads(told_by("t", "describe", "1", "--json", "--limit", "3", "--pages", "1"))
    assert [step["training"]["totalBatches"] for step in page["workloads"]] == [1, 2, 3]
    assert "avg_metrics,zero,20,0" in told_by("t", "describe", "1", "--metrics-summary", "--csv")


_ELSEWHERE = """
from determined import core
with core.init() as context:
    here = {"threads": 2, "ranks": 1, "torch": "2.9"}
    context.train._report_environment(here, ["2 threads instead of 1"])
    context.train.report_validation_metrics(1, {"loss": 1.0})
"""


def test_the_environment_of_each_run_is_described(lab: Lab) -> None:
    lab.wait(lab.create(_ELSEWHERE, searcher={"name": "single", "metric": "loss"}))
    told = told_by("t", "describe", "1")
    assert "Environment:\n  run 1: 2 threads, 1 process, torch 2.9\n" in told
    assert "    not as before: 2 threads instead of 1\n" in told
    (found,) = json.loads(told_by("t", "describe", "1", "--json"))["environments"]
    assert found["environment"]["threads"] == 2
    assert found["differences"] == ["2 threads instead of 1"]


def test_killing_a_trial_ends_it_alone(lab: Lab) -> None:
    number = lab.create(ENDLESS)
    lab.until(lambda: lab.trials(number)[0].total_batches > 0)
    assert told_by("trial", "kill", "1") == "Killed trial 1\n"
    lab.until(lambda: lab.trials(number)[0].state == "CANCELED")
    lab.service.kill(number)
    lab.wait(number)


def test_debugging_stops_at_breakpoints_and_changes_nothing(lab: Lab) -> None:
    script = STEPS.replace("    while steps", "    if steps: breakpoint()\n    while steps")
    script = script.replace("if steps: breakpoint()", "if DEBUGS and steps: breakpoint()")
    script = "import os\nDEBUGS = 'DET_RUN_DIR' not in os.environ\n" + script
    number = lab.create(script, hyperparameters={"lr": 0.5})
    lab.wait(number)
    lab.until(lambda: is_collected(lab, number))
    before = (lab.experiment(number), lab.trials(number), lab.checkpoints(number))
    reports = list(lab.service.reader.metrics.reports(1))
    files = sorted(lab.home.path.rglob("*"))
    with det_on_a_terminal("t", "debug", "1") as terminal:
        terminal.until("Debugging trial 1 from batch 20")
        terminal.until("(Pdb)")
        terminal.type("print('hp', info.trial.hparams, 'from', steps)\n")
        terminal.until("hp {'lr': 0.5} from 20")
        terminal.type("steps = 18\n")
        terminal.type("continue\n")
        assert terminal.end() == 0
    assert "ends at 20" in terminal.output
    answer = run_det("t", "debug", "1", "--from-beginning")
    assert "starts\x1b[0m at 0" in answer.stdout
    assert before == (lab.experiment(number), lab.trials(number), lab.checkpoints(number))
    assert reports == list(lab.service.reader.metrics.reports(1))
    assert files == sorted(lab.home.path.rglob("*"))


def test_debugging_gives_the_exit_code_and_leaves_nothing(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.wait(lab.create("raise SystemExit(7)"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    told = told_by("t", "debug", "1", code=7)
    assert "from the beginning" in told
    assert list((tmp_path / "tmp").iterdir()) == []
    told = told_by("t", "debug", "1", "--keep", code=7)
    (kept,) = (tmp_path / "tmp").iterdir()
    assert f"Its files are in {kept}" in told
    assert (kept / "workdir" / "script.py").exists()
