"""Experiments on a Slurm of two nodes: the life cycle, and what faults cost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined._os import processes
from determined.platform.machines.slurm import load_table
from determined.platform.queries.queue import read_queue
from determined.store import Run
from tests.support.cluster_lab import ClusterLab, chain, weights
from tests.support.lab import Lab
from tests.support.line_trial import LAUNCH, MODEL, TRAIN
from tests.support.slurm import PrivateSlurm

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_TWELVE = list(enumerate(chain(12), start=1))
_COUNTING = """#!/bin/sh
echo "$@" >> {log}
exec {real} "$@"
"""
_DEADLY = """#!/bin/sh
# Kills the supervisor, which called this, before or after the submission; once.
if mv {folder}/before {folder}/done 2>/dev/null; then kill -9 $PPID; exit 1; fi
{real} "$@" > {folder}/answer
if mv {folder}/after {folder}/done 2>/dev/null; then kill -9 $PPID; exit 1; fi
cat {folder}/answer
"""


class SlurmLab(ClusterLab):
    """A home whose runs are jobs."""

    def job_of(self, run: Run) -> str:
        table = load_table(self.home.slurm)
        assert table is not None
        found = [job.id for job in table.jobs if job.allocation_id == run.allocation_id]
        return found[0] if found else ""

    def processes(self) -> list[psutil.Process]:
        return Lab.processes(self)


@pytest.fixture(scope="module")
def lab(slurm: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmLab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_CLUSTER", "slurm")
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        made = SlurmLab(tmp_path_factory.mktemp("lab"))
        yield made
        made.close()


def test_pause_and_activate_keep_every_row(lab: SlurmLab) -> None:
    experiment_id = lab.chain("pause")
    lab.until_halted(experiment_id)
    lab.service.pause(experiment_id)
    lab.until(lambda: lab.runs(experiment_id)[-1].ended)
    lab.service.activate(experiment_id)
    lab.gate("pause").touch()
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    assert lab.losses(experiment_id) == _TWELVE
    assert len(lab.runs(experiment_id)) == 2
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 0


def test_kill_and_delete_leave_nothing(lab: SlurmLab, slurm: PrivateSlurm) -> None:
    experiment_id = lab.chain("kill")
    run = lab.until_halted(experiment_id)
    lab.service.kill(experiment_id)
    assert lab.wait(experiment_id).state == "CANCELED"
    lab.until(lambda: not processes.with_variable("DET_ALLOCATION_ID", run.allocation_id))
    lab.until(lambda: not slurm.run("squeue", "--noheader", "--me").strip())
    lab.service.delete_experiments([experiment_id])
    lab.until(lambda: not Path(run.folder).exists())


def test_a_search_fills_the_partition_and_the_queue_says_what_waits(
    lab: SlurmLab, slurm: PrivateSlurm
) -> None:
    experiment_id = lab.chain(
        "search",
        searcher={"name": "random", "metric": "loss", "max_trials": 6},
        hyperparameters={"x": {"type": "double", "minval": 0, "maxval": 1}},
    )
    lab.until(lambda: sum("step 6\n" in lab.log(run) for run in lab.runs(experiment_id)) == 4)

    def reasons() -> list[str]:
        queue = read_queue(lab.home, lab.service.reader, has_supervisor=True)
        assert len(queue.jobs) == 6
        return [item.reason for item in queue.waiting]

    lab.until(lambda: len(reasons()) == 2 and any("(Resources)" in why for why in reasons()))
    lab.gate("search").touch()
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    for trial in lab.trials(experiment_id):
        rows = lab.service.reader.metrics.reports(trial.id, "validation")
        assert [row.metrics["loss"] for row in rows] == chain(12, trial.hparams["x"])


def test_scancel_by_the_users_own_hand_cancels_the_trial(
    lab: SlurmLab, slurm: PrivateSlurm
) -> None:
    experiment_id = lab.chain("scancel")
    run = lab.until_halted(experiment_id)
    lab.until(lambda: lab.job_of(run))
    slurm.run("scancel", lab.job_of(run))
    lab.until(lambda: lab.trials(experiment_id)[0].state == "CANCELED")
    assert "was canceled with scancel" in (lab.trials(experiment_id)[0].reason or "")
    lab.wait(experiment_id)
    assert len(lab.runs(experiment_id)) == 1


def test_a_preempted_trial_continues_in_another_job(lab: SlurmLab) -> None:
    lasting = lab.chain("preempted")
    lab.until_halted(lasting)
    # Both nodes are wanted by a partition that preempts this one.
    urgent = lab.create(
        "pass", resources={"slots_per_trial": 4, "resource_pool": "urgent"}, max_restarts=0
    )
    assert lab.wait(urgent).state == "COMPLETED", lab.account()
    lab.gate("preempted").touch()
    assert lab.wait(lasting).state == "COMPLETED", lab.account()
    assert len(lab.runs(lasting)) == 2
    assert lab.losses(lasting) == _TWELVE
    (trial,) = lab.trials(lasting)
    assert trial.restarts == 0


@pytest.mark.timeout(300)
def test_a_job_at_its_time_limit_continues_in_another(
    lab: SlurmLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.lab.DEADLINE_SECONDS", 200.0)
    experiment_id = lab.chain("limit", slurm={"sbatch_args": ["--time=1"]})
    lab.until(lambda: len(lab.runs(experiment_id)) == 2)
    lab.gate("limit").touch()
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    assert lab.losses(experiment_id) == _TWELVE
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_supervisor_that_dies_at_the_submission_costs_nothing(
    lab: SlurmLab,
    slurm: PrivateSlurm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    shim = tmp_path / "sbatch"
    shim.write_text(_DEADLY.format(folder=tmp_path, real="/usr/bin/sbatch"))
    shim.chmod(0o755)
    lab.kill_supervisor()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / when).touch()
    lab.gate(f"dies-{when}").touch()
    experiment_id = lab.chain(f"dies-{when}")
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    assert (tmp_path / "done").exists()
    assert lab.losses(experiment_id) == _TWELVE
    logs = "".join(lab.log(run) for run in lab.runs(experiment_id))
    assert logs.count("starts at 0") == 1  # nothing has trained twice
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 0
    lab.kill_supervisor()  # the next test has another PATH


def test_a_supervisor_dies_and_the_run_goes_on(lab: SlurmLab) -> None:
    experiment_id = lab.chain("deaths")
    run = lab.until_halted(experiment_id)
    lab.kill_supervisor()
    lab.gate("deaths").touch()
    assert lab.wait(experiment_id).state == "COMPLETED"
    assert len(lab.runs(experiment_id)) == 1
    assert lab.losses(experiment_id) == _TWELVE
    steps = "".join(f"step {n}\n" for n in range(1, 13))
    assert lab.log(run).partition("starts at 0\n")[2] == steps


def test_a_controller_that_is_away_is_waited_for(lab: SlurmLab, slurm: PrivateSlurm) -> None:
    experiment_id = lab.chain("controller")
    lab.until_halted(experiment_id)
    slurm.kill("slurmctld")
    try:

        def is_told() -> bool:
            queue = read_queue(lab.home, lab.service.reader, has_supervisor=True)
            return any("Slurm does not answer" in line for line in queue.skipped)

        lab.until(is_told)
        waiting = lab.chain("meanwhile", until_gate=99)
        lab.gate("controller").touch()
        assert lab.wait(experiment_id).state == "COMPLETED"  # its end needs no answer
    finally:
        slurm.start("slurmctld")
        slurm.wait_until_up()
    assert lab.wait(waiting).state == "COMPLETED", lab.account()
    for each in (experiment_id, waiting):
        assert lab.losses(each) == _TWELVE
        assert len(lab.runs(each)) == 1


def test_a_lost_node_costs_no_restart_and_no_row(lab: SlurmLab, slurm: PrivateSlurm) -> None:
    experiment_id = lab.chain("node", resources={"resource_pool": "second"}, max_restarts=0)
    run = lab.until_halted(experiment_id)
    slurm.kill("n2")
    slurm.run("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    try:
        lab.until(lambda: len(lab.runs(experiment_id)) == 2)
        # Its processes are alive, without a daemon: they end through the shared folder.
        lab.until(lambda: not processes.with_variable("DET_ALLOCATION_ID", run.allocation_id))
    finally:
        slurm.start("n2")
        slurm.run("scontrol", "update", "nodename=n2", "state=resume")
        slurm.wait_until_up()
    lab.gate("node").touch()
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    assert lab.losses(experiment_id) == _TWELVE
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 0
    assert "a node of its job failed" in lab.account()


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
    together = lab.create(MODEL, **config)
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


def test_many_short_trials_with_few_jobs_cost_one_question_at_a_time(
    lab: SlurmLab, slurm: PrivateSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another home on the same cluster, with `max_jobs` and a shared folder of its own."""
    log = tmp_path / "questions"
    shim = tmp_path / "squeue"
    shim.write_text(_COUNTING.format(log=log, real="/usr/bin/squeue"))
    shim.chmod(0o755)
    monkeypatch.delenv("DET_CLUSTER")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    other = SlurmLab(tmp_path)
    other.home.path.mkdir()
    (other.home.path / "platform.yaml").write_text(
        f"cluster: {{type: slurm, max_jobs: 3, shared_dir: {tmp_path}/shared}}\n"
    )
    try:
        experiment_id = other.chain(
            "many",
            length=2,
            until_gate=9,
            searcher={"name": "random", "metric": "loss", "max_trials": 9},
            hyperparameters={"x": {"type": "double", "minval": 0, "maxval": 1}},
        )
        most = 0

        def is_over() -> bool:
            nonlocal most
            jobs = slurm.run("squeue", "--noheader", "--me", "--format=%T").split()
            most = max(most, len([state for state in jobs if state in ("PENDING", "RUNNING")]))
            return other.experiment(experiment_id).state == "COMPLETED"

        other.until(is_over)
        assert most <= 3
        ours = [line for line in log.read_text().splitlines() if "--states=all" in line]
        assert 1 <= len(ours) <= 60
        assert not list((tmp_path / "shared").glob("*/*"))  # nothing is left there
        assert len(other.runs(experiment_id)) == 9
    finally:
        other.close()
