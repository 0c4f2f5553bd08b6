"""Experiments on a Slurm of two nodes: their life cycle, and what the cluster is asked."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined._os import processes
from determined.platform.queries.queue import read_queue
from tests.cli.det import run_det
from tests.dashboard.served import served
from tests.platform.runs.launchers.slurm.conftest import LabMaker
from tests.support import faults
from tests.support.cluster_lab import chain, let_one_go_on, outcomes, weights
from tests.support.lab import Lab
from tests.support.line_trial import LAUNCH, MODEL, TRAIN
from tests.support.searches import check_replay
from tests.support.slurm import PrivateSlurm, SlurmLab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_TWELVE = list(enumerate(chain(12), start=1))
_X = {"x": {"type": "double", "minval": 0, "maxval": 1}}
_COUNTING = """#!/bin/sh
date +%s.%N >> {log}
exec {real} "$@"
"""


def test_a_trial_is_paused_activated_and_continued_without_losing_a_row(lab: SlurmLab) -> None:
    experiment_id = lab.chain("pause")
    lab.until_halted(experiment_id)
    lab.service.pause(experiment_id)
    lab.until(lambda: lab.runs(experiment_id)[-1].ended)
    lab.service.activate(experiment_id)
    lab.gate("pause").touch()
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    assert lab.losses(experiment_id) == _TWELVE
    assert len(lab.runs(experiment_id)) == 2
    lab.service.continue_experiment(experiment_id, overrides=["data.length=14"])
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    assert lab.losses(experiment_id) == list(enumerate(chain(14), start=1))
    assert "starts at 12" in lab.log(lab.runs(experiment_id)[-1])
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 0


def test_kill_and_delete_leave_nothing(lab: SlurmLab, slurm: PrivateSlurm) -> None:
    experiment_id = lab.chain("kill")
    run = lab.until_halted(experiment_id)
    lab.service.kill(experiment_id)
    assert lab.wait(experiment_id).state == "CANCELED"
    lab.until(lambda: not processes.with_variable("DET_ALLOCATION_ID", run.allocation_id))
    slurm.wait_until_idle()
    lab.service.delete_experiments([experiment_id])
    lab.until(lambda: not Path(run.folder).exists())


def test_a_search_fills_the_partition_and_the_queue_says_what_waits(
    lab: SlurmLab, slurm: PrivateSlurm
) -> None:
    experiment_id = lab.chain(
        "search",
        searcher={"name": "random", "metric": "loss", "max_trials": 6},
        hyperparameters=_X,
    )
    lab.until(lambda: sum("step 6\n" in lab.log(run) for run in lab.runs(experiment_id)) == 4)

    def reasons() -> list[str]:
        queue = read_queue(lab.home, lab.service.reader, has_supervisor=True)
        assert len(queue.jobs) == 6
        return [item.reason for item in queue.waiting]

    lab.until(lambda: len(reasons()) == 2 and any("(Resources)" in why for why in reasons()))
    shown = run_det("slot", "list", environment={"DET_HOME": str(lab.home.path)}).stdout
    assert "Partition main, the default: 2 nodes of up to 2 CPUs" in shown
    assert "waits for nodes to become free (Resources)" in shown
    with served(lab.home) as dashboard:
        found = dashboard.json("/api/queue")
    assert [each["name"] for each in found["partitions"]] == ["main", "urgent", "second", "apart"]
    assert sorted(each["host"] for each in found["running"]) == ["n1", "n1", "n2", "n2"]
    assert all(each["job"] and not each["slots"] for each in found["running"])
    assert sorted(each["why"] for each in found["waiting"]) == sorted(reasons())
    lab.gate("search").touch()
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    for trial in lab.trials(experiment_id):
        rows = lab.service.reader.metrics.reports(trial.id, "validation")
        assert [row.metrics["loss"] for row in rows] == chain(12, trial.hparams["x"])


def test_a_refusal_of_slurm_is_one_line_at_the_trial(lab: SlurmLab) -> None:
    for option, words in (
        ("--partition=nowhere", "invalid partition specified: nowhere"),
        ("--constraint=gold", "Invalid feature specification"),
    ):
        experiment_id = lab.create("pass", slurm={"sbatch_args": [option]})
        assert lab.wait(experiment_id).state == "ERROR"
        (trial,) = lab.trials(experiment_id)
        (run,) = lab.runs(experiment_id)
        assert words in (trial.reason or "")
        assert "\n" not in (trial.reason or "")
        assert option in Path(run.folder, "job.sh").read_text()


def test_two_slots_on_one_node_and_on_two_train_to_the_same_weights(
    lab: SlurmLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: dict[str, Any] = {
        "files": {"train.py": TRAIN},
        "entrypoint": f"{LAUNCH} python3 train.py",
        "resources": {"slots_per_trial": 2},
        "hyperparameters": {"global_batch_size": 6, "lr": 0.1},
        "reproducibility": {"experiment_seed": 7},
    }
    apart = {**config["resources"], "resource_pool": "apart"}  # so that both run at once
    together = lab.create(MODEL, **{**config, "resources": apart})
    spread = lab.create(MODEL, **config, slurm={"slots_per_node": 1})
    for experiment_id in (together, spread):
        assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
        (run,) = lab.runs(experiment_id)
        assert lab.log(run).count("ranks 2") == 2
    (run,) = lab.runs(spread)
    assert len(list(Path(run.folder, "nodes").iterdir())) == 2

    monkeypatch.delenv("DET_CLUSTER")
    monkeypatch.setenv("DET_SLOTS", "2")
    one = Lab(tmp_path)
    try:
        here = one.create(MODEL, **config)
        assert one.wait(here).state == "COMPLETED", one.account()
        assert weights(lab, together) == weights(lab, spread) == weights(one, here)
    finally:
        one.close()


def test_a_search_with_kills_ends_like_on_one_machine(
    lab: SlurmLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, states and what checkpoints hold; some trials are promoted, others stopped."""
    config: dict[str, Any] = {
        "hyperparameters": _X,
        "searcher": {
            **{"name": "adaptive_asha", "metric": "loss", "max_trials": 12, "max_time": 4},
            **{"time_metric": "epochs", "divisor": 2, "max_concurrent_trials": 4},
            "bracket_rungs": [3],
        },
        "reproducibility": {"experiment_seed": 7},
        "max_restarts": 0,
    }
    lab.gate("search").touch()
    there = lab.chain("search", length=4, until_gate=0, **config)
    lab.until(lambda: let_one_go_on(lab, there) >= 5 and _kill_one_that_waits(lab, there))
    lab.until(lambda: let_one_go_on(lab, there) >= 12)
    lab.kill_supervisor()
    lab.until(lambda: let_one_go_on(lab, there) and lab.experiment(there).state == "COMPLETED")
    check_replay(lab, there)
    assert len(lab.runs(there)) > 12  # one began again

    monkeypatch.delenv("DET_CLUSTER")
    monkeypatch.setenv("DET_SLOTS", "4")
    one = SlurmLab(tmp_path)
    try:
        one.gate("search").touch()
        here = one.chain("search", length=4, until_gate=0, **config)
        one.until(lambda: let_one_go_on(one, here) and one.experiment(here).state == "COMPLETED")
        assert outcomes(lab, there) == outcomes(one, here)
        assert _saved(lab, there) == _saved(one, here)
    finally:
        one.close()


def _kill_one_that_waits(lab: SlurmLab, experiment_id: int) -> bool:
    """Kill a run with its keeper, so that nobody says how it ended; False if none waits now."""
    for trial in lab.trials(experiment_id):
        steps = len(list(lab.service.reader.metrics.reports(trial.id, "validation")))
        if trial.state != "ACTIVE" or Path(f"{lab.gate('search')}-{trial.id}-{steps}").exists():
            continue
        key = lab.service.reader.runs(trial.id)[-1].allocation_id
        found = [p for p in psutil.process_iter() if _is_part_of(p, key)]
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return bool(found)
    return False


def _is_part_of(process: psutil.Process, key: str) -> bool:
    with contextlib.suppress(psutil.Error):
        return key in " ".join(process.cmdline()) or key in str(process.environ())
    return False


def _saved(lab: Lab, experiment_id: int) -> list[Any]:
    """What the newest checkpoint of each trial holds."""
    newest = {
        each.trial_id: json.loads((lab.home.checkpoints / each.uuid / "state").read_text())
        for each in sorted(lab.checkpoints(experiment_id), key=lambda c: c.steps_completed)
        if each.state == "COMPLETED"
    }
    return [newest.get(trial.id) for trial in lab.trials(experiment_id)]


@pytest.mark.timeout(120 * faults.factor() ** 3)
def test_many_short_trials_of_one_home_ask_one_question_at_a_time(
    lab: SlurmLab,
    other_lab: LabMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside another home on the same cluster; `max_jobs` holds, nothing is left."""
    beside = lab.chain("beside")
    lab.until_halted(beside)
    log, shim = tmp_path / "questions", tmp_path / "squeue"
    shim.write_text(_COUNTING.format(log=log, real="/usr/bin/squeue"))
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    other = other_lab(max_jobs=4, shared_dir=str(tmp_path / "shared"))
    count = 12 if faults.factor() == 1 else 200
    monkeypatch.setattr("tests.support.lab.DEADLINE_SECONDS", 7.0 * count)
    experiment_id = other.chain(
        "many",
        length=2,
        until_gate=9,
        searcher={"name": "random", "metric": "loss", "max_trials": count},
        hyperparameters=_X,
    )
    most = 0

    def is_over() -> bool:
        nonlocal most
        most = max(most, len(other.service.reader.unfinished_runs()))  # one look at all of them
        return other.experiment(experiment_id).state == "COMPLETED"

    other.until(is_over)
    assert most <= 4
    times = [float(line) for line in log.read_text().splitlines()]
    assert all(later - earlier >= 2 for earlier, later in zip(times, times[1:], strict=False))
    assert not list((tmp_path / "shared").glob("*/*"))  # nothing is left there
    assert len(other.runs(experiment_id)) == count
    lab.gate("beside").touch()
    assert lab.wait(beside).state == "COMPLETED", lab.account()
    assert len(lab.runs(beside)) == 1
    assert lab.losses(beside) == _TWELVE
