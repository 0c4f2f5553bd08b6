"""Killed at any instant of a save, a run leaves whole checkpoints only, and continues exactly."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from determined import pytorch
from determined.storage import SharedFSStorageManager, _crash_points
from tests.support.forks import Child
from tests.support.resumable import ResumableTrial, Trained, checkpoints, train
from tests.support.workers import run_workers

BATCHES = 8
KILLS = int(os.environ.get("DET_TEST_KILLS", "60"))
DEADLINE_SECONDS = 60.0

Tell = Callable[[], Any]


class Telling(ResumableTrial):
    """Tells the parent process when its first batch is trained."""

    tell: Tell

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        metrics = super().train_batch(batch, epoch_idx, batch_idx)
        if len(self.losses) == 1:
            type(self).tell()
        return metrics


def run(storage: Path, options: dict[str, Any], tell: Tell) -> Trained:
    """Train to the end from whatever is there, with a save after every batch."""
    # Checkpoints copy the code of the working directory: have an empty one.
    (storage.parent / "work").mkdir(exist_ok=True)
    os.chdir(storage.parent / "work")
    Telling.tell = tell
    return train(
        storage,
        BATCHES,
        aggregation=3,
        trial_class=Telling,
        latest_checkpoint="latest",
        **{"checkpoint_period": pytorch.Batch(1), **options},
    )


def crash(storage: Path, options: dict[str, Any], point: str, hits: int, tell: Tell) -> Trained:
    _crash_points._armed, _crash_points._hits_left = point, hits
    return run(storage, options, tell)


def check_storage(storage: Path) -> list[int]:
    """Every checkpoint that can be seen is whole to the last byte; return how far each is."""
    manager = SharedFSStorageManager(storage)
    found = checkpoints(storage)
    visible = {p.name for p in storage.glob("[!.]*")}
    assert visible == {checkpoint.storage_id for checkpoint in found}
    for checkpoint in found:
        assert manager.verify(checkpoint.storage_id)
    return [checkpoint.metadata["steps_completed"] for checkpoint in found]


def leftovers(storage: Path) -> list[str]:
    return [p.name for p in storage.glob(".*") if ".tmp-" in p.name or ".del-" in p.name]


# Each of these runs in a worker process, whose children are killed.

TWO_KEPT = {"exp_conf": {"checkpoint_storage": {"save_trial_latest": 2}}}


def _preload() -> None:
    """Import once what every child would import by itself when it builds its first optimizer."""
    import pathspec  # noqa: F401
    import torch._dynamo  # noqa: F401


# Name of the point, at which of its hits to die, whether in the background thread.
POINTS = [
    ("before_tmp", 1, True),
    ("before_tmp", 4, False),
    ("mid_write", 1, True),
    ("mid_write", 5, False),
    ("mid_write", 9, True),
    ("before_fsync", 2, True),
    ("before_fsync", 23, True),
    ("before_fsync", 31, False),
    ("before_manifest", 3, True),
    ("before_rename", 1, True),
    ("before_rename", 4, False),
    ("after_rename", 1, True),
    ("after_rename", 4, False),
    ("mid_gc", 1, True),
    ("mid_gc", 3, False),
]


def _crash_everywhere(root: Path) -> dict[str, Any]:
    _preload()
    seen: dict[str, Any] = {}
    seen["whole"] = Child(run, root / "whole", {}).result()
    for point, hits, is_async in POINTS:
        storage = root / f"{point}-{hits}-{is_async}"
        options: dict[str, Any] = {"async_checkpoint": is_async}
        if point == "mid_gc":
            options["init"] = TWO_KEPT
        status = Child(crash, storage, options, point, hits).join()
        had_leftovers = bool(leftovers(storage))
        steps = check_storage(storage)
        resumed = Child(run, storage, {**options, "checkpoint_period": None}).result()
        check_storage(storage)
        seen[storage.name] = (status, steps, had_leftovers, resumed, leftovers(storage))
    return seen


@pytest.mark.multiprocess
def test_a_crash_at_any_named_point_does_no_harm(tmp_path: Path) -> None:
    (seen,) = run_workers(
        1, _crash_everywhere, tmp_path, process_group=False, deadline_seconds=DEADLINE_SECONDS
    )
    whole = seen.pop("whole")
    assert len(seen) == len(POINTS)
    for name, (status, steps, had_leftovers, resumed, left) in seen.items():
        point = name.partition("-")[0]
        assert status == -signal.SIGKILL, name
        if point != "before_fsync":  # some of those come after the rename
            assert had_leftovers == (point not in ("before_tmp", "after_rename")), name
        assert len(resumed.losses) == BATCHES - max(steps, default=0), name
        assert resumed.ends_like(whole), name
        assert left == [], name


def _kill_often(root: Path, kills: int, seed: int) -> dict[str, Any]:
    _preload()
    draw = random.Random(seed)
    whole = Child(run, root / "whole", {}).result()
    done = in_save = runs = 0
    while done < kills:
        runs += 1
        storage = root / f"run-{runs}"
        options = draw.choice([{}, {"async_checkpoint": False}, {"init": TWO_KEPT}])
        while True:
            child = Child(run, storage, options)
            child.wait_until_told(DEADLINE_SECONDS)
            time.sleep(draw.uniform(0, 0.08))
            was_killed = done < kills and child.kill()
            if not was_killed:
                break
            done += 1
            in_save += bool(leftovers(storage))
            check_storage(storage)
        resumed = child.result()  # not killed: enough is enough, or it was too fast for us
        assert resumed.ends_like(whole), f"seed {seed}, run {runs}"
        assert leftovers(storage) == []
        check_storage(storage)
    return {"in_save": in_save, "runs": runs}


@pytest.mark.multiprocess
@pytest.mark.timeout(DEADLINE_SECONDS + KILLS + 60)
def test_random_kills_never_leave_a_broken_checkpoint(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**31)
    (seen,) = run_workers(
        1,
        _kill_often,
        tmp_path,
        KILLS,
        seed,
        process_group=False,
        deadline_seconds=DEADLINE_SECONDS + KILLS,
    )
    assert seen["in_save"] >= KILLS * 0.3, f"seed {seed}: {seen}"
