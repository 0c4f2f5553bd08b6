"""What ends, hangs or vanishes around a trial on Slurm costs neither a row nor a restart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from determined._os import processes
from determined.platform.queries.queue import read_queue
from tests.platform.runs.launchers.slurm.conftest import LabMaker
from tests.support import faults
from tests.support.cluster_lab import chain
from tests.support.kill_points import KillPoint, KillPoints
from tests.support.slurm import PrivateSlurm, SlurmLab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_TWELVE = list(enumerate(chain(12), start=1))
_DEADLY = """#!/bin/sh
# Kills the supervisor, which called this, before or after the submission; once each.
if mv {folder}/before {folder}/before-is-done 2>/dev/null; then kill -9 $PPID; exit 1; fi
{real} "$@" > {folder}/answer
if mv {folder}/after {folder}/after-is-done 2>/dev/null; then kill -9 $PPID; exit 1; fi
cat {folder}/answer
"""


@pytest.fixture(scope="module", autouse=True)
def limited(lab: SlurmLab) -> int:
    """A trial that reaches its time limit while other tests run: Slurm counts in minutes."""
    return lab.chain(
        "limit", slurm={"sbatch_args": ["--time=1"]}, resources={"resource_pool": "apart"}
    )


def assert_whole(lab: SlurmLab, experiment_id: int, runs: int | None = None) -> None:
    """It ended as if nothing had happened, after so many runs if that is known."""
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    assert lab.losses(experiment_id) == _TWELVE
    assert runs in (None, len(lab.runs(experiment_id)))
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 0


def test_scancel_by_the_users_own_hand_cancels_the_trial(
    lab: SlurmLab, slurm: PrivateSlurm
) -> None:
    experiment_id = lab.chain("scancel")
    run = lab.until_halted(experiment_id)
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
    assert_whole(lab, lasting, runs=2)


def test_a_requeued_trial_continues_in_another_job(lab: SlurmLab, slurm: PrivateSlurm) -> None:
    experiment_id = lab.chain("requeued")
    job = lab.job_of(lab.until_halted(experiment_id))
    slurm.run("scontrol", "update", f"jobid={job}", "requeue=1")
    slurm.run("scontrol", "requeue", job)
    lab.gate("requeued").touch()
    assert_whole(lab, experiment_id, runs=2)
    assert job not in slurm.run("squeue", "--noheader", "--me", "--format=%i").split()


def test_supervisors_that_die_around_sbatch_forget_no_job_and_start_none_twice(
    lab: SlurmLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once at each point between the commit, `sbatch`, its answer, and the record of that."""
    shim = tmp_path / "sbatch"
    shim.write_text(_DEADLY.format(folder=tmp_path, real="/usr/bin/sbatch"))
    shim.chmod(0o755)
    for name in ("before", "after"):
        (tmp_path / name).touch()
    lab.kill_supervisor()
    points = KillPoints(tmp_path / "points", monkeypatch)
    points.arm(
        KillPoint("committed", "supervisor", r"os\.mkdir .*/trials/\d+/1$"),
        KillPoint("prepared", "supervisor", r"open .*/job\.sh"),
        KillPoint("answered", "supervisor", r"os\.rename .*/submitted\.json"),
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    experiment_id = lab.chain(
        "dies",
        until_gate=99,
        searcher={
            **{"name": "random", "metric": "loss", "max_trials": 2},
            "max_concurrent_trials": 1,
        },
        hyperparameters={"x": 0.5},
    )
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    lab.kill_supervisor()  # the next test has another PATH
    assert points.pending == []
    assert {path.name for path in tmp_path.glob("*-is-done")} == {"before-is-done", "after-is-done"}
    for trial in lab.trials(experiment_id):
        rows = lab.service.reader.metrics.reports(trial.id, "validation")
        assert [row.metrics["loss"] for row in rows] == chain(12)
        logs = "".join(lab.log(run) for run in lab.service.reader.runs(trial.id))
        assert logs.count("starts at 0") == 1
        assert trial.restarts == 0


def test_a_supervisor_dies_and_the_run_goes_on(lab: SlurmLab) -> None:
    experiment_id = lab.chain("deaths")
    run = lab.until_halted(experiment_id)
    lab.kill_supervisor()
    lab.gate("deaths").touch()
    assert_whole(lab, experiment_id, runs=1)
    steps = "".join(f"step {n}\n" for n in range(1, 13))
    assert lab.log(run).partition("starts at 0\n")[2] == steps


def test_a_controller_that_is_away_is_waited_for(lab: SlurmLab, slurm: PrivateSlurm) -> None:
    experiment_id = lab.chain("controller")
    slurm.wait_until_saved(lab.until_halted(experiment_id).allocation_id)
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
    for each in (experiment_id, waiting):
        assert_whole(lab, each, runs=1)


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
    assert_whole(lab, experiment_id, runs=2)
    assert "a node of its job failed" in lab.account()


def test_nothing_is_concluded_from_a_shared_folder_that_is_stale_or_hangs(
    other_lab: LabMaker, tmp_path: Path
) -> None:
    """Only here: nodes reach it by another path, and train on."""
    real, here = tmp_path / "real", tmp_path / "here"
    real.mkdir()
    here.symlink_to(real)
    lab = other_lab(shared_dir=str(here), shared_dir_on_nodes=str(real))
    stale, hanging = lab.chain("stale"), lab.chain("hanging")
    run, other = lab.until_halted(stale), lab.until_halted(hanging)

    def told(words: str) -> bool:
        return words in lab.home.supervisor_log.read_text()

    point_to(here, here)  # all that is asked of it fails, and not as if it was not there
    lab.until(lambda: told("Too many levels of symbolic links"))
    lab.gate("stale").touch()
    (there,) = real.glob(f"*/{run.allocation_id}/parts/0")
    lab.until(lambda: (there / "exit.json").exists())
    (tmp_path / "empty").mkdir()
    point_to(here, tmp_path / "empty")  # as a mount point without its file system
    lab.until(lambda: told("is the file system that nodes share mounted?"))
    assert all(run.ended is None for each in (stale, hanging) for run in lab.runs(each))
    point_to(here, real)
    assert_whole(lab, stale, runs=1)

    (taken,) = real.glob(f"*/{other.allocation_id}/taken")
    with Hanging(taken) as hangs:
        lab.until(hangs.has_caught_somebody)
        assert lab.wait(lab.create("pass")).state == "COMPLETED"  # others do not wait for it
    lab.gate("hanging").touch()
    assert_whole(lab, hanging, runs=1)


def point_to(link: Path, target: Path) -> None:
    draft = link.with_name("draft")
    draft.symlink_to(target)
    draft.replace(link)


class Hanging:
    """A file whose readers wait until the end of this, as on a file system that hangs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content = path.read_bytes()
        self._writer: int | None = None

    def __enter__(self) -> Hanging:
        draft = self._path.with_name("draft")
        os.mkfifo(draft)
        draft.replace(self._path)
        return self

    def has_caught_somebody(self) -> bool:
        try:
            self._writer = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads
            return False
        return True

    def __exit__(self, *error: object) -> None:
        draft = self._path.with_name("draft")
        draft.write_bytes(self._content)
        draft.replace(self._path)
        if self._writer is not None:
            os.write(self._writer, self._content)
            os.close(self._writer)


def test_a_full_shared_folder_ends_the_run_that_filled_it_and_others_wait(
    other_lab: LabMaker, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    with faults.mounted("-t", "tmpfs", "-o", "size=4m", "tmpfs", at=small):
        lab = other_lab(shared_dir=str(small))
        filling = lab.create("while True: print('x' * 1000)")
        assert lab.wait(filling).state == "ERROR", lab.account()
        (trial,) = lab.trials(filling)
        assert "There is no room left on the disk of" in (trial.reason or "")
        litter = small / "litter"
        room = os.statvfs(small)
        litter.write_bytes(bytes(room.f_bavail * room.f_frsize - (1 << 19)))
        lab.until(lambda: _is_full(lab))
        waiting = lab.create("pass")
        lab.until(lambda: _reasons(lab) == ["Slurm cannot be used now"])
        litter.unlink()
        assert lab.wait(waiting).state == "COMPLETED", lab.account()
        assert len(lab.runs(waiting)) == 1


def _is_full(lab: SlurmLab) -> bool:
    queue = read_queue(lab.home, lab.service.reader, has_supervisor=True)
    return any("which nodes share, is full" in line for line in queue.skipped)


def _reasons(lab: SlurmLab) -> list[str]:
    queue = read_queue(lab.home, lab.service.reader, has_supervisor=True)
    return [item.reason for item in queue.waiting]


def test_a_job_at_its_time_limit_continues_in_another(lab: SlurmLab, limited: int) -> None:
    lab.until(lambda: len(lab.runs(limited)) >= 2)
    lab.gate("limit").touch()
    assert_whole(lab, limited)
