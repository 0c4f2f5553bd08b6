"""Deleting experiments and checkpoints: refused, finished over crashes, told when it fails."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

import pytest

from determined.platform.service import NotFoundError, RefusedError
from determined.store import CheckpointFilter, Retention, Writer
from tests.support.lab import Lab
from tests.support.messages import documented
from tests.support.saving import SAVES_FIVE, collected, steps

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

WAITS = """
import time
from determined import core
with core.init() as ctx:
    ctx.train.report_validation_metrics(1, {"loss": 1.0})
    with ctx.checkpoint.store_path({"steps_completed": 1}) as (path, _):
        (path / "state").write_text("1")
    while not ctx.preempt.should_preempt():
        time.sleep(0.02)
"""


def keeping_all(lab: Lab, **options: Any) -> dict[str, Any]:
    storage = {"type": "shared_fs", "host_path": str(lab.home.checkpoints)}
    return storage | {"save_trial_latest": 9} | options


def ended(lab: Lab, **config: Any) -> int:
    experiment_id = lab.create(SAVES_FIVE, checkpoint_storage=keeping_all(lab), **config)
    collected(lab, [experiment_id])
    return experiment_id


def register(lab: Lab, uuid: str) -> None:
    """As the model registry does, while no supervisor lives."""
    lab.kill_supervisor()
    writer = Writer(lab.home.path)
    try:
        with writer.transaction() as transaction:
            model = transaction.registry.create_model(f"model of {uuid}", "me")
            transaction.registry.register_version(model.id, uuid)
    finally:
        writer.close()


def test_a_deleted_experiment_leaves_nothing_behind(lab: Lab) -> None:
    experiment_id, other = ended(lab), ended(lab)
    uuids = [row.uuid for row in lab.checkpoints(experiment_id)]
    (trial,) = lab.trials(experiment_id)
    assert len(uuids) == 5
    assert all((lab.home.checkpoints / uuid).is_dir() for uuid in uuids)
    assert (lab.home.tensorboard / str(trial.id)).is_dir()
    lab.service.delete_experiments([experiment_id])
    with pytest.raises(NotFoundError, match=f"There is no experiment {experiment_id}"):
        lab.service.experiment(experiment_id)
    assert lab.service.reader.trial(trial.id) is None
    assert not any((lab.home.checkpoints / uuid).exists() for uuid in uuids)
    assert not (lab.home.tensorboard / str(trial.id)).exists()
    assert not lab.home.experiment(experiment_id).exists()
    assert steps(lab, other, "COMPLETED") == [1, 2, 3, 4, 5]
    assert ended(lab) > other  # ids are never used again


def test_what_runs_or_is_registered_cannot_be_deleted(lab: Lab) -> None:
    running = lab.create(WAITS, checkpoint_storage=keeping_all(lab))
    lab.until(lambda: lab.checkpoints(running))
    done = ended(lab)
    for numbers in ([running], [done, running]):
        with pytest.raises(RefusedError, match="only an experiment that has ended can be deleted"):
            lab.service.delete_experiments(numbers)
    (needed,) = lab.checkpoints(running)
    with pytest.raises(RefusedError, match="trial 1 resumes from it"):
        lab.service.delete_checkpoints([needed.uuid])
    lab.service.kill(running)
    lab.wait(running)
    first, second, *_ = lab.checkpoints(done)
    register(lab, first.uuid)
    with pytest.raises(RefusedError, match="it is version 1 of the model") as refused:
        lab.service.delete_experiments([done])
    told = str(refused.value)
    documented("an experiment is to be deleted whose checkpoint is registered", told, first.uuid)
    with pytest.raises(RefusedError, match="it is version 1 of the model"):
        lab.service.delete_checkpoints([second.uuid, first.uuid], ["*"])
    lab.service.set_gc_policy(done, Retention(0, 0, 0))
    assert steps(lab, done, "COMPLETED") == [1]
    assert lab.experiment(done).state == "COMPLETED"


def test_a_deletion_goes_on_after_any_crash(lab: Lab) -> None:
    """The supervisor is killed again and again while it deletes."""
    numbers = [ended(lab), ended(lab)]
    uuids = [row.uuid for number in numbers for row in lab.checkpoints(number)]
    is_over = threading.Event()

    def keep_killing() -> None:
        while not is_over.wait(0.15):
            lab.kill_supervisor()

    killer = threading.Thread(target=keep_killing)
    killer.start()
    try:
        for number in numbers:
            with contextlib.suppress(NotFoundError):  # asked before, and done by now
                lab.service.delete_experiments([number])
    finally:
        is_over.set()
        killer.join()
    assert lab.service.reader.experiments().rows == []
    assert not any((lab.home.checkpoints / uuid).exists() for uuid in uuids)
    assert lab.service.reader.checkpoints(CheckpointFilter()).rows == []


def test_a_deletion_that_fails_is_told_and_can_be_repeated(lab: Lab) -> None:
    experiment_id = ended(lab)
    (blocked, *others) = lab.checkpoints(experiment_id)
    folder = lab.home.checkpoints / blocked.uuid
    os.symlink("/", folder / "loop")  # noqa: PTH211  # nothing of ours: the storage refuses it
    with pytest.raises(RefusedError, match="could not be deleted: .* tries again") as refused:
        lab.service.delete_experiments([experiment_id])
    varying = (blocked.uuid, lab.home.checkpoints)
    documented("files of a deleted experiment cannot be removed", str(refused.value), *varying)
    assert lab.experiment(experiment_id).state == "DELETE_FAILED"
    assert not any((lab.home.checkpoints / other.uuid).exists() for other in others)
    with pytest.raises(RefusedError, match="DELETE_FAILED"):
        lab.service.continue_experiment(experiment_id)
    lab.kill_supervisor()
    (folder / "loop").unlink()
    lab.service.delete_experiments([experiment_id])
    assert lab.service.reader.experiment(experiment_id) is None
    assert not folder.exists()


def test_parts_of_checkpoints_go_by_pattern(lab: Lab) -> None:
    script = SAVES_FIVE.replace(
        '(path / "state").write_text(str(step))',
        '(path / "state").write_text(str(step)); (path / "big").mkdir(); '
        '(path / "big" / "optimizer.pt").write_text("x" * 100)',
    )
    experiment_id = lab.create(script, checkpoint_storage=keeping_all(lab))
    collected(lab, [experiment_id])
    first, second, third, *_ = lab.checkpoints(experiment_id)
    before = lab.experiment(experiment_id).checkpoint_size
    (after,) = lab.service.delete_checkpoints([first.uuid], ["**/optimizer.pt"])
    assert after.state == "PARTIALLY_DELETED"
    assert set(after.resources) == {"state", "big/", "metadata.json"}
    assert not (lab.home.checkpoints / first.uuid / "big" / "optimizer.pt").exists()
    assert lab.experiment(experiment_id).checkpoint_size == before - 100
    (same,) = lab.service.delete_checkpoints([second.uuid], ["*.onnx"])
    assert same == second
    (gone,) = lab.service.delete_checkpoints([second.uuid], ["*", ".*"])
    assert (gone.state, gone.resources, gone.size) == ("DELETED", {}, 0)
    assert not (lab.home.checkpoints / second.uuid).exists()
    for pattern in ("", "  ", "../*", "/etc/*", "a/../../b"):
        with pytest.raises(RefusedError, match="pattern"):
            lab.service.delete_checkpoints([third.uuid], [pattern])
    assert lab.service.reader.checkpoint(third.uuid) == third
    assert lab.experiment(experiment_id).checkpoint_count == 4


def test_records_are_brought_in_line_with_the_files(lab: Lab) -> None:
    experiment_id = ended(lab)
    first, second, third, *_ = lab.checkpoints(experiment_id)
    (lab.home.checkpoints / first.uuid / "state").unlink()
    for path in (lab.home.checkpoints / second.uuid).iterdir():
        path.unlink()
    (lab.home.checkpoints / second.uuid).rmdir()
    uuids = [first.uuid, second.uuid, third.uuid]
    found = lab.service.delete_checkpoints(uuids, [])
    assert [row.state for row in found] == ["PARTIALLY_DELETED", "DELETED", "COMPLETED"]
    assert found[2] == third


def test_the_preview_of_a_policy_is_what_it_deletes(lab: Lab) -> None:
    experiment_id = ended(lab)
    policy = Retention(experiment_best=1, trial_best=0, trial_latest=0)
    preview = sorted(
        r.checkpoint.steps_completed for r in lab.service.garbage(experiment_id, policy)
    )
    lab.service.set_gc_policy(experiment_id, policy)
    assert steps(lab, experiment_id, "DELETED") == preview == [1, 2, 4, 5]
    assert lab.experiment(experiment_id).config["checkpoint_storage"]["save_trial_latest"] == 0
    assert lab.service.garbage(experiment_id) == []
    lab.service.collect_garbage([experiment_id])
    assert steps(lab, experiment_id, "COMPLETED") == [3]


def test_a_policy_of_a_running_experiment_spares_what_it_needs(lab: Lab) -> None:
    running = lab.create(WAITS, checkpoint_storage=keeping_all(lab))
    lab.until(lambda: lab.checkpoints(running))
    lab.service.set_gc_policy(running, Retention(0, 0, 0))
    assert steps(lab, running, "COMPLETED") == [1]
    lab.service.kill(running)
    collected(lab, [running])
    assert steps(lab, running, "DELETED") == [1]


def test_an_experiment_moves_to_a_project_that_exists(lab: Lab) -> None:
    there = ended(lab, workspace="ours", project="vision")
    here = ended(lab)
    lab.service.move(here, "ours", "vision")
    assert lab.experiment(here).project_id == lab.experiment(there).project_id
    assert lab.experiment(here).config["project"] == "vision"
    for place in (("theirs", "vision"), ("ours", "audio")):
        with pytest.raises(RefusedError, match="There is no (workspace|project)"):
            lab.service.move(here, *place)


def test_event_files_can_be_deleted_alone(lab: Lab) -> None:
    experiment_id = ended(lab)
    (trial,) = lab.trials(experiment_id)
    assert lab.service.delete_tensorboard_files(experiment_id) > 0
    assert not (lab.home.tensorboard / str(trial.id)).exists()
    assert lab.service.delete_tensorboard_files(experiment_id) == 0


def test_unknown_things_cannot_be_deleted(lab: Lab) -> None:
    for act in (
        lambda: lab.service.delete_experiments([99]),
        lambda: lab.service.delete_checkpoints(["no-such"]),
        lambda: lab.service.set_gc_policy(99, Retention()),
        lambda: lab.service.move(99, "a", "b"),
    ):
        with pytest.raises(NotFoundError, match="There is no"):
            act()
