"""Deletion that is cut short, raced or confused never costs the checkpoint that is needed."""

from __future__ import annotations

import datetime
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined import core, pytorch
from determined.storage import (
    HashingFile,
    RetentionPolicy,
    SharedFSStorageManager,
    _manifest,
    apply_retention,
)
from tests.support.faults import factor
from tests.support.forks import Child
from tests.support.resumable import ResumableTrial, checkpoints, steps, train
from tests.support.workers import run_workers

DEADLINE_SECONDS = 60.0 + 60 * (factor() - 1)
EVERYTHING = ["**/*"]


def save(manager: SharedFSStorageManager, name: str, number: int, **metrics: float) -> None:
    path = manager.pre_store_path(name)
    (path / "code" / "package").mkdir(parents=True)
    (path / "code" / "package" / "main.py").write_text(f"number = {number}")
    with HashingFile(path / "weights") as file:
        file.write(b"w" * 999)
    metadata = {"steps_completed": number, "run_id": "run", "metrics": metrics}
    manager.post_store_path(path, name, metadata=metadata, known={"weights": file.digest})


def names(manager: SharedFSStorageManager) -> list[str]:
    """Everything that can be seen, all of it whole."""
    found = [checkpoint.storage_id for checkpoint in manager.list("run")]
    assert all(manager.verify(name) for name in found)
    return found


# Kills.


def _die_at(number: int, folder: Path, act: Callable[[], Any]) -> None:
    """Do something, and be killed just before its n-th change to the folder."""
    left = number

    def see(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir") and ".det-locks" not in str(
            arguments[0]
        ):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(see)
    act()


def _delete(root: Path, globs: list[str], number: int, tell: Any) -> None:
    manager = SharedFSStorageManager(root)
    _die_at(number, root, lambda: manager.delete("old", globs))


def _apply(root: Path, globs: list[str], number: int, tell: Any) -> None:
    manager = SharedFSStorageManager(root)
    _die_at(number, root, lambda: apply_retention(manager, RetentionPolicy(), ["run"]))


def _kill_deletions(root: Path) -> int:
    cases = 0
    for delete, globs in [(_delete, EVERYTHING), (_apply, []), (_delete, ["code/**"])]:
        for number in range(1, 100):
            storage = root / f"{cases}"
            manager = SharedFSStorageManager(storage)
            save(manager, "old", 1)
            save(manager, "new", 2)
            was_killed = Child(delete, storage, globs, number).join() == -signal.SIGKILL
            after = SharedFSStorageManager(storage)
            assert names(after) in (["old", "new"], ["new"])
            after.sweep()
            assert {path.name for path in storage.glob(".*")} <= {".det-locks", ".det-runs"}
            save(after, "newer", 3)
            assert names(after)[-1] == "newer"
            apply_retention(after, RetentionPolicy(), ["run"])
            assert names(after) == ["newer"] or ["old", "newer"]
            cases += 1
            if not was_killed:
                break
        else:
            raise AssertionError("it never came to an end")
    return cases


@pytest.mark.multiprocess
def test_a_kill_anywhere_in_a_deletion_leaves_a_whole_checkpoint_or_none(tmp_path: Path) -> None:
    (cases,) = run_workers(1, _kill_deletions, tmp_path, process_group=False)
    assert cases > 15


# Races.


def _save_and_delete(root: Path, saves: int, tell: Callable[[], Any]) -> None:
    manager = SharedFSStorageManager(root)
    for number in range(1, saves + 1):
        save(manager, f"number-{number}", number)
        apply_retention(manager, RetentionPolicy(), ["run"])
        if number == 1:
            tell()


def _read_meanwhile(root: Path, saves: int) -> tuple[int, int]:
    child = Child(_save_and_delete, root, saves)
    child.wait_until_told(DEADLINE_SECONDS)
    manager = SharedFSStorageManager(root)
    context = core.CheckpointContext(core.DummyDistributedContext(), manager)
    seen = [0]
    reads = 0
    while seen[-1] < saves:
        found = manager.latest("run")
        assert found is not None, f"nothing is found after number {seen[-1]}"
        seen.append(int(found.metadata["steps_completed"]))
        with context.restore_named("latest", "run") as (name, path):
            assert name.startswith("number-")
            assert (path / "weights").read_bytes() == b"w" * 999
        reads += 1
    child.result()
    assert seen == sorted(seen)
    return reads, len(set(seen))


@pytest.mark.multiprocess
@pytest.mark.timeout(DEADLINE_SECONDS + 60)
def test_the_newest_is_found_and_read_while_another_process_replaces_it(tmp_path: Path) -> None:
    ((reads, different),) = run_workers(
        1,
        _read_meanwhile,
        tmp_path,
        100 * factor(),
        process_group=False,
        deadline_seconds=DEADLINE_SECONDS,
    )
    assert reads > 20
    assert different > 10


# Through `fit`.


class Scored(ResumableTrial):
    scores: Sequence[float] = ()

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"score": self.scores[self.callbacks["counter"].batches - 1]}


def train_scored(storage: Path, scores: Sequence[float], numbers: dict[str, int]) -> None:
    Scored.scores = scores
    train(
        storage,
        len(scores),
        trial_class=Scored,
        validation_period=pytorch.Batch(1),
        checkpoint_policy="all",
        metric="score",
        latest_checkpoint="latest",
        init={"exp_conf": {"checkpoint_storage": numbers}},
    )


@settings(max_examples=8 * factor(), deadline=None)
@given(
    scores=st.lists(st.sampled_from([1.0, 2.0, 3.0, float("nan")]), min_size=2, max_size=6),
    best=st.integers(0, 2),
    latest=st.integers(0, 2),
    cut=st.integers(1, 5),
)
def test_the_best_and_the_latest_stay_also_when_they_are_the_same(
    scores: list[float], best: int, latest: int, cut: int
) -> None:
    numbers = {"save_trial_best": best, "save_trial_latest": latest}
    with tempfile.TemporaryDirectory() as folder:
        storage = Path(folder, "storage")
        train_scored(storage, scores[:cut], numbers)
        train_scored(storage, scores, numbers)
        kept = steps(storage)
        assert kept[-1] == len(scores)
        assert set(range(len(scores) - latest + 1, len(scores) + 1)) <= set(kept)
        order = [s for s in scores if s == s] + [s for s in scores if s != s]
        if best:
            assert min(order, key=lambda s: (s != s, s)) in [scores[step - 1] for step in kept] or (
                order[0] != order[0]
            )
        started_from = min(cut, len(scores))
        assert len(kept) <= best + max(latest, 1) + (started_from in kept)


def test_what_we_did_not_write_is_left_alone(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    numbers = {"save_trial_best": 0, "save_trial_latest": 1}
    train_scored(storage, [1.0], numbers)
    (first,) = checkpoints(storage)
    ours = [
        storage / first.storage_id / "notes.txt",
        storage / "readme.txt",
        storage / "data" / "images.bin",
        storage / ".hidden" / "file",
        storage / f".{first.storage_id}.tmp-not-ours" / "file",
        storage / "looks-like-one" / "weights",
    ]
    for path in ours:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    train_scored(storage, [1.0] * 4, numbers)
    train_scored(storage, [1.0] * 5, numbers)
    assert [path.read_text() for path in ours] == ["mine"] * len(ours)
    assert steps(storage)[0] == 1
    assert steps(storage)[-1] == 5


# Clocks.


class Clock(datetime.datetime):
    """Tells the times that it is given, one after the other."""

    times: list[datetime.datetime]

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return cls.times.pop(0)


@settings(max_examples=20 * factor(), deadline=None)
@given(
    seconds=st.lists(
        st.sampled_from([0, 1, 1, 10**9, 4 * 10**9, 1_743_296_399, 1_743_296_400]),
        min_size=2,
        max_size=6,
    ),
    seed=st.integers(0, 100),
)
def test_clocks_that_jump_or_stand_still_change_nothing(seconds: list[int], seed: int) -> None:
    draw = random.Random(seed)
    utc = datetime.timezone.utc
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        Clock.times = [datetime.datetime.fromtimestamp(second, utc) for second in seconds]
        patch.setattr(_manifest, "datetime", Clock)
        for number in range(1, len(seconds) + 1):
            save(SharedFSStorageManager(folder), f"{draw.random()}", number)
            for path in Path(folder).rglob("*"):
                os.utime(path, (draw.choice(seconds), draw.choice(seconds)))
            manager = SharedFSStorageManager(folder)
            newest = manager.latest("run")
            assert newest is not None
            assert newest.manifest.steps_completed == number
            apply_retention(manager, RetentionPolicy(save_trial_latest=2), ["run"])
            assert [c.manifest.steps_completed for c in manager.list()] == [number - 1, number][
                -number:
            ]
