"""Checkpoints of experiments: adopted, collected, started from, on real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from determined.errors import StoreError
from determined.platform.service import RefusedError
from determined.storage import DirectoryStorageManager
from tests.support.lab import Lab
from tests.support.saving import SAVES_FIVE, collected, is_collected, steps

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

# Saves at each of the steps; the first run is killed once the second checkpoint is published,
# before it can be reported.
KILLED_AFTER_PUBLISHING = """
import os, signal
import determined as det
from determined import core

info = det.get_cluster_info()
with core.init() as ctx:
    if info.trial._trial_run_id == 1:
        report, saves = ctx.checkpoint._report, []
        def die_the_second_time(*saved):
            saves.append(saved)
            if len(saves) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            report(*saved)
        ctx.checkpoint._report = die_the_second_time
    start = 0
    if info.latest_checkpoint:
        start = ctx.checkpoint.get_metadata(info.latest_checkpoint)["steps_completed"]
    print("starts at", start, "as told", info.trial._steps_completed, flush=True)
    for step in range(start + 1, 5):
        ctx.train.report_training_metrics(step, {"loss": float(step)})
        with ctx.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "state").write_text(str(step))
    ctx.train.report_validation_metrics(4, {"loss": 0.5})
"""


def storage(lab: Lab, **options: Any) -> dict[str, Any]:
    return {"type": "shared_fs", "host_path": str(lab.home.checkpoints), **options}


def test_a_checkpoint_that_was_published_but_not_reported_is_adopted(lab: Lab) -> None:
    keep_all = storage(lab, save_trial_latest=10)
    experiment_id = lab.create(KILLED_AFTER_PUBLISHING, max_restarts=1, checkpoint_storage=keep_all)
    assert lab.wait(experiment_id).state == "COMPLETED"
    first, second = lab.runs(experiment_id)
    assert (first.exit_code, second.exit_code) == (137, 0)
    assert "starts at 2 as told 2" in lab.log(second)
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 0  # it brought a checkpoint
    assert steps(lab, experiment_id, "COMPLETED") == [1, 2, 3, 4]
    reports = lab.service.reader.metrics.reports(trial.id, "training")
    assert [report.steps_completed for report in reports] == [1, 2, 3, 4]
    (event,) = kinds(lab, experiment_id, "checkpoint_adopted")
    assert "was saved but not reported" in event


def kinds(lab: Lab, experiment_id: int, kind: str) -> list[str]:
    found = lab.service.reader.events(experiment_id=experiment_id)
    return [event.text for event in found if event.kind == kind]


@pytest.mark.parametrize("gc", ["end", "continuous"])
def test_only_the_best_and_the_latest_checkpoint_stay(lab: Lab, gc: str) -> None:
    experiment_id = lab.create(SAVES_FIVE, checkpoint_storage=storage(lab, gc=gc))
    collected(lab, [experiment_id])
    assert steps(lab, experiment_id, "COMPLETED") == [3, 5]
    assert steps(lab, experiment_id, "DELETED") == [1, 2, 4]


def test_a_paused_trial_keeps_the_checkpoint_that_it_goes_on_from(lab: Lab) -> None:
    script = """
import time
import determined as det
from determined import core
with core.init() as ctx:
    info = det.get_cluster_info()
    print("from", info.trial._steps_completed, flush=True)
    step = info.trial._steps_completed
    while step < 100:
        step += 1
        ctx.train.report_validation_metrics(step, {"loss": -step})
        with ctx.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "state").write_text(str(step))
        if ctx.preempt.should_preempt():
            break
        time.sleep(0.05)
"""
    nothing = storage(lab, save_trial_latest=0, save_trial_best=0, gc="continuous")
    experiment_id = lab.create(script, checkpoint_storage=nothing)
    for _ in range(2):
        seen = lab.trials(experiment_id)[0].total_batches
        lab.until(lambda at=seen: lab.trials(experiment_id)[0].total_batches > at + 3)  # type: ignore[misc]
        lab.service.pause(experiment_id)
        lab.until(lambda: not lab.service.reader.unfinished_runs())
        lab.until(lambda: is_collected(lab, experiment_id))
        (left,) = steps(lab, experiment_id, "COMPLETED")
        lab.service.activate(experiment_id)
        lab.until(lambda at=left: f"from {at}" in lab.log(lab.runs(experiment_id)[-1]))  # type: ignore[misc]
    lab.service.kill(experiment_id)
    collected(lab, [experiment_id])
    assert steps(lab, experiment_id, "COMPLETED") == []


def test_a_deletion_that_was_cut_short_is_finished_later(lab: Lab) -> None:
    experiment_id = lab.create(SAVES_FIVE, paused=True)
    victims = lab.home.path / "half"
    victims.mkdir()
    lab.service.activate(experiment_id)
    lab.until(lambda: len(lab.checkpoints(experiment_id)) >= 1)
    lab.kill_supervisor()
    lab.until(lambda: lab.experiment(experiment_id).state == "COMPLETED")
    lab.kill_supervisor()  # perhaps in the middle of the collection
    for row in lab.checkpoints(experiment_id):
        if row.steps_completed == 1:  # as if its deletion had begun
            (lab.home.checkpoints / row.uuid / "state").unlink(missing_ok=True)
    collected(lab, [experiment_id])
    assert steps(lab, experiment_id, "COMPLETED") == [3, 5]
    assert steps(lab, experiment_id, "DELETED") == [1, 2, 4]


def test_trials_start_from_the_checkpoint_that_the_searcher_names(lab: Lab) -> None:
    source = lab.create(SAVES_FIVE)
    collected(lab, [source])
    (trial,) = lab.trials(source)
    latest = next(c for c in lab.checkpoints(source) if c.steps_completed == 5)
    best = next(c for c in lab.checkpoints(source) if c.steps_completed == 3)
    script = """
import determined as det
info = det.get_cluster_info()
print("starts with", info.latest_checkpoint, info.trial._steps_completed)
"""
    single = {"name": "single", "metric": "loss"}
    for key, value, wanted in (
        ("source_trial_id", trial.id, latest),
        ("source_checkpoint_uuid", best.uuid, best),
    ):
        started = lab.wait(lab.create(script, searcher=single | {key: value}))
        (run,) = lab.runs(started.id)
        assert f"starts with {wanted.uuid} 0" in lab.log(run)


def test_a_warm_start_reads_the_storage_that_has_its_checkpoint(lab: Lab, tmp_path: Path) -> None:
    source = lab.create(SAVES_FIVE)
    collected(lab, [source])
    script = """
import determined as det
from determined import core
with core.init() as ctx:
    uuid = det.get_cluster_info().latest_checkpoint
    with ctx.checkpoint.restore_path(uuid) as path:
        print("has", (path / "state").read_text())
    print("of", ctx.checkpoint.get_metadata(uuid)["steps_completed"])
    ctx.checkpoint.download(uuid, "copy")
    with ctx.checkpoint.store_path({"steps_completed": 1}) as (path, own):
        (path / "state").write_text("mine")
    with ctx.checkpoint.restore_path(own) as path:
        print("and", (path / "state").read_text())
"""
    other = {"type": "shared_fs", "host_path": str(tmp_path / "other")}
    searcher = {"name": "single", "metric": "loss", "source_trial_id": lab.trials(source)[0].id}
    started = lab.wait(lab.create(script, searcher=searcher, checkpoint_storage=other))
    (run,) = lab.runs(started.id)
    assert started.state == "COMPLETED", lab.log(run)
    assert "has 5\n" in lab.log(run)
    assert "of 5\n" in lab.log(run)
    assert "and mine\n" in lab.log(run)
    (own,) = lab.checkpoints(started.id)
    assert (tmp_path / "other" / own.uuid).is_dir()


def test_a_warm_start_from_nothing_is_refused(lab: Lab) -> None:
    single = {"name": "single", "metric": "loss"}
    empty = lab.wait(lab.create("pass"))
    (trial,) = lab.trials(empty.id)
    before = sorted(lab.home.creations.iterdir())
    for key, value, words in (
        ("source_trial_id", 99, "There is no trial 99"),
        ("source_trial_id", trial.id, "has no checkpoint"),
        ("source_checkpoint_uuid", "none-such", "there is no checkpoint none-such"),
    ):
        with pytest.raises((RefusedError, StoreError), match=words):
            lab.create("pass", searcher=single | {key: value})
    assert len(lab.service.reader.experiments().rows) == 1
    assert sorted(lab.home.creations.iterdir()) == before


def test_a_storage_that_cannot_be_used_fails_the_run_at_its_start(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    bad = {"type": "shared_fs", "host_path": str(file)}
    ended = lab.wait(lab.create("print('ran')", checkpoint_storage=bad))
    assert ended.state == "ERROR"
    assert f"checkpoint_storage: {file}" in lab.trials(ended.id)[0].reason
    assert "ran" not in lab.log(lab.runs(ended.id)[0])


def test_a_checkpoint_can_be_read_where_its_record_says(lab: Lab) -> None:
    experiment_id = lab.create(SAVES_FIVE)
    collected(lab, [experiment_id])
    for row in lab.checkpoints(experiment_id):
        if row.state == "COMPLETED":
            stored = DirectoryStorageManager(str(lab.home.checkpoints))
            assert stored.resources(row.uuid) == row.resources
            assert stored.verify(row.uuid)
