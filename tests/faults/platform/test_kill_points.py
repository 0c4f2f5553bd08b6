"""kill -9 at named points: each is hit for certain, and all goes on as if nothing had been."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from determined._os.processes import look_up
from determined.platform.runs.folder import RunFolder
from tests.cli.det import run_det
from tests.faults.platform.steady import (
    check_as_unbroken,
    check_only_the_supervisor_lives,
    check_storage_is_recorded,
    script,
)
from tests.support.kill_points import KillPoint, KillPoints
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

SUPERVISOR, TRIAL = "determined.platform.supervisor", "script.py"
ANSWER = r"^sql UPDATE command SET answered"
POINTS = [
    KillPoint("a transaction before its commit", SUPERVISOR, r"^sql COMMIT", 4),
    KillPoint("a transaction after its commit", SUPERVISOR, r"^sql COMMIT", 3, after=True),
    KillPoint("a command about to be answered", SUPERVISOR, ANSWER),
    KillPoint("a trial about to be created", SUPERVISOR, r"^sql INSERT INTO trial"),
    KillPoint("the folder of a run half made", SUPERVISOR, r"^os.mkdir .*/trials/\d+/1/info"),
    KillPoint("the spec of a run half written", SUPERVISOR, r"^os.rename .*/spec.json$"),
    KillPoint("a run marked as started", SUPERVISOR, r"^open .*/1/started"),
    KillPoint("a keeper just started", SUPERVISOR, r"^os.posix_spawn", after=True),
    KillPoint("a checkpoint about to be recorded", SUPERVISOR, r"^sql INSERT INTO checkpoint", 2),
    KillPoint("the end of a run about to be recorded", SUPERVISOR, r"^sql UPDATE run SET ended"),
    KillPoint("a search about to be recorded", SUPERVISOR, r"^sql INSERT INTO search_step", 3),
    KillPoint("a journal record half written", TRIAL, r"^write .*/journal-", 4),
    KillPoint("a checkpoint about to be published", TRIAL, r"^os.rename .*/checkpoints/"),
    KillPoint(
        "a checkpoint published, not told", TRIAL, r"^os.rename .*/checkpoints/", 1, after=True
    ),
    KillPoint("a deletion half done", SUPERVISOR, r"^os.(remove|rmdir) .*checkpoints"),
]


def test_an_experiment_that_dies_at_every_kill_point_ends_as_unbroken(
    lab: Lab, kill_points: KillPoints
) -> None:
    kill_points.arm(*POINTS)
    cold = {"warm_start": False}  # processes learn of their death when they start
    experiment_id = lab.create(script(), max_restarts=9, environment=cold)
    check_as_unbroken(lab, experiment_id)
    lab.until(lambda: not lab.service.reader.has_chores())
    assert kill_points.pending == []
    check_storage_is_recorded(lab)
    check_only_the_supervisor_lives(lab)


def test_a_pause_that_nobody_was_told_of_is_told_at_the_next_call(
    lab: Lab, kill_points: KillPoints
) -> None:
    gate = lab.folder / "gate"
    is_open = f"__import__('os').path.exists({str(gate)!r})"
    experiment_id = lab.create(script(f"0.0 if {is_open} else 2.0"), max_restarts=9)
    lab.until(lambda: any("step 1" in lab.log(run) for run in lab.runs(experiment_id)))
    lab.kill_supervisor()
    kill_points.arm(KillPoint("a run about to be told", SUPERVISOR, r"/control"))
    lab.service.pause(experiment_id)
    lab.until(lambda: not kill_points.pending)
    control = Path(lab.runs(experiment_id)[0].folder, "control")
    lab.until(lambda: '"preempt": true' in control.read_text())
    gate.touch()
    lab.until(lambda: not lab.service.reader.unfinished_runs())
    assert lab.experiment(experiment_id).state == "PAUSED"
    (run,) = lab.runs(experiment_id)
    assert run.acknowledged
    lab.service.activate(experiment_id)
    check_as_unbroken(lab, experiment_id)


CLIENT = "determined.cli"
POINTS_OF_A_CREATION = [
    KillPoint("code half copied", CLIENT, r"^open .*/snapshots/"),
    KillPoint("code copied, not in place", CLIENT, r"^os.rename .*/snapshots/"),
    KillPoint(
        "an environment half written", CLIENT, r"^os.rename .*/creations/.*environment.json$"
    ),
    KillPoint("a command about to be left", CLIENT, r"^sql INSERT INTO command"),
    KillPoint("a command left, not answered", CLIENT, r"^sql INSERT INTO command", after=True),
]


def test_a_client_killed_at_every_point_of_a_creation_doubles_nothing(
    lab: Lab, kill_points: KillPoints, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "script.py").write_text(script())
    (code / "const.yaml").write_text(
        "name: client\nentrypoint: python3 script.py\nsearcher: {name: single, metric: loss}\n"
    )
    words = ["e", "create", str(code / "const.yaml"), str(code)]
    home = {"DET_HOME": str(lab.home.path)}
    for point in POINTS_OF_A_CREATION:
        kill_points.arm(point)
        done = run_det(*words, environment=home)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert kill_points.pending == []
    assert run_det(*words, environment=home).returncode == 0
    lab.until(lambda: not lab.service.reader.has_unanswered())
    experiments = lab.service.reader.experiments().rows
    assert [experiment.id for experiment in experiments] in ([1], [1, 2], [2, 1])
    for experiment in experiments:
        check_as_unbroken(lab, experiment.id)
    snapshots = {experiment.snapshot_id for experiment in experiments}
    assert len(snapshots) == 1
    check_only_the_supervisor_lives(lab)


def test_a_keeper_killed_before_it_says_how_a_run_ended_costs_one_more_run(lab: Lab) -> None:
    experiment_id = lab.create(script(0.1))
    lab.until(lambda: lab.runs(experiment_id))
    folder = RunFolder(lab.runs(experiment_id)[0].folder)
    lab.until(lambda: folder.entrypoint is not None)
    keeper = folder.keeper
    assert keeper is not None
    # Who opens a pipe waits for a reader: the keeper stands still where it would write the end.
    draft = folder.path / f".exit.json.{keeper.pid}.draft"
    os.mkfifo(draft)
    lab.until(lambda: "ends with" in folder.log.read_text())
    entrypoint = folder.entrypoint
    lab.until(lambda: entrypoint is not None and look_up(entrypoint) is None)
    os.kill(keeper.pid, signal.SIGKILL)
    draft.unlink()
    check_as_unbroken(lab, experiment_id)
    assert len(lab.runs(experiment_id)) == 2
