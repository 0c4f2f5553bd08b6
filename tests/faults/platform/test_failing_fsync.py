"""The disk of a home fails to keep what was written (EIO), or takes its time."""

from __future__ import annotations

import threading

import pytest

from determined.errors import DeterminedError
from tests.cli.det import run_det
from tests.dashboard.served import served
from tests.faults.platform.steady import check_as_unbroken, script
from tests.support.failing_disk import FailingDisk, disk
from tests.support.lab import Lab, lab
from tests.support.messages import documented

__all__ = ["disk", "lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(100)]

STORE, JOURNAL, EXIT = "*/store.db-wal", "*/journal-*", "*/.exit.json.*"


def test_a_journal_that_fails_ends_the_save_and_the_run_goes_on_from_before(
    lab: Lab, disk: FailingDisk
) -> None:
    disk.fail_once(JOURNAL)
    experiment_id = lab.create(script(), max_restarts=2)
    check_as_unbroken(lab, experiment_id)
    assert len(disk.hits) == 1
    log = lab.log(lab.runs(experiment_id)[0])
    assert "The checkpoint is not saved, because its metrics cannot be" in log
    assert "Input/output error" in log
    assert len(lab.runs(experiment_id)) == 2


@pytest.mark.parametrize("place", [STORE, EXIT], ids=["store", "end of a run"])
def test_what_fails_once_is_done_again(lab: Lab, disk: FailingDisk, place: str) -> None:
    # Warm helpers have an environment of their own, and a disk that works.
    experiment_id = lab.create(script(0.02), environment={"warm_start": False})
    lab.until(lambda: lab.checkpoints(experiment_id))
    disk.fail_once(place)
    check_as_unbroken(lab, experiment_id)
    assert len(disk.hits) == 1


def test_a_store_that_cannot_be_written_answers_nobody_and_says_so(
    lab: Lab, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("determined.platform.service.supervised_home._STOPPED_AFTER_SECONDS", 0.2)
    experiment_id = lab.create(script(0.02))
    lab.until(lambda: lab.checkpoints(experiment_id))
    disk.fail(STORE)
    with pytest.raises(DeterminedError) as failed:
        lab.service.kill(experiment_id)
    documented("the disk of the home fails", str(failed.value), str(lab.home.path))
    home = {"DET_HOME": str(lab.home.path)}
    refused = run_det("e", "label", "add", str(experiment_id), "x", environment=home)
    assert refused.returncode == 1
    assert "disk I/O error" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert run_det("e", "list", environment=home).returncode == 0
    assert lab.experiment(experiment_id).state == "ACTIVE"
    disk.heal()
    lab.until(lambda: lab.experiment(experiment_id).state in ("CANCELED", "COMPLETED"))
    assert lab.experiment(experiment_id).labels == []


def test_an_experiment_whose_code_may_be_lost_is_not_created(lab: Lab, disk: FailingDisk) -> None:
    lab.wait(lab.create("pass"))
    code = lab.folder / "more"
    code.mkdir()
    (code / "script.py").write_text("pass\n")
    (code / "config.yaml").write_text(
        "name: x\nentrypoint: python3 script.py\nsearcher: {name: single, metric: loss}\n"
    )
    disk.fail("*/script.py")
    home = {"DET_HOME": str(lab.home.path)}
    words = ["e", "create", str(code / "config.yaml"), str(code)]
    refused = run_det(*words, environment=home)
    assert refused.returncode == 1, refused.stdout
    assert "Input/output error" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert len(lab.service.reader.experiments().rows) == 1
    disk.heal()
    assert run_det(*words, environment=home).returncode == 0
    assert lab.wait(2).state == "COMPLETED"


def test_nobody_waits_for_a_slow_store(lab: Lab, disk: FailingDisk) -> None:
    experiment_id = lab.create(script(0.02))
    lab.until(lambda: lab.checkpoints(experiment_id))
    disk.hold(STORE)
    lab.until(lambda: disk.hits)
    (run,) = lab.runs(experiment_id)
    lab.until(lambda: "ends with" in lab.log(run))  # the trial trains on to its end
    home = {"DET_HOME": str(lab.home.path)}
    assert run_det("e", "list", environment=home).returncode == 0
    assert run_det("t", "logs", "1", environment=home).returncode == 0
    with served(lab.home) as shown:
        assert shown.json("/api/experiments")
    asked = threading.Thread(target=lab.service.kill, args=(experiment_id,))
    asked.start()
    asked.join(0.5)
    assert asked.is_alive(), "a command was answered before it was on disk"
    disk.heal()
    asked.join(60)
    assert not asked.is_alive()
    assert lab.wait(experiment_id).state in ("CANCELED", "COMPLETED")
    (trial,) = lab.trials(experiment_id)
    reports = lab.service.reader.metrics.reports(trial.id, "training")
    assert [report.steps_completed for report in reports] == list(range(1, 13))


def test_a_trial_whose_journal_is_slow_still_reports(lab: Lab, disk: FailingDisk) -> None:
    """While one thread waits for a save, the next steps are trained and shown."""
    gate = lab.folder / "gate"
    experiment_id = lab.create(_BACKGROUND.format(gate=str(gate)))
    disk.hold(JOURNAL)
    lab.until(lambda: disk.hits)
    gate.touch()

    def reported() -> list[int]:
        return [
            report.steps_completed
            for trial in lab.trials(experiment_id)
            for report in lab.service.reader.metrics.reports(trial.id, "training")
        ]

    lab.until(lambda: reported() == [1, 2, 3])
    assert lab.checkpoints(experiment_id) == []
    disk.heal()
    assert lab.wait(experiment_id).state == "COMPLETED"
    assert len(lab.checkpoints(experiment_id)) == 1


_BACKGROUND = """
import pathlib, threading, time
from determined import core
def save(ctx):
    with ctx.checkpoint.store_path({{"steps_completed": 1}}) as (path, _):
        (path / "state").write_text("1")
with core.init() as ctx:
    ctx.train.report_training_metrics(1, {{"loss": 1.0}})
    saving = threading.Thread(target=save, args=(ctx,))
    saving.start()
    while not pathlib.Path({gate!r}).exists(): time.sleep(0.01)
    for step in (2, 3):
        ctx.train.report_training_metrics(step, {{"loss": 1.0}})
    saving.join()
"""
