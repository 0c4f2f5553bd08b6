"""Storage that is full, read-only, gone or slow: older checkpoints stay, and the message helps."""

from __future__ import annotations

import errno
import itertools
import os
import random
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from determined import core, pytorch
from determined.errors import CheckpointError
from determined.storage import Manifest, SharedFSStorageManager
from tests.support.faults import draw_seed, factor, mounted
from tests.support.forks import Child
from tests.support.resumable import ResumableTrial, Trained, fingerprint, steps, train
from tests.support.victims import Setup, Tell, check_storage, leftovers, preload, run
from tests.support.waiting import eventually
from tests.support.workers import run_workers

DEADLINE_SECONDS = 100.0
MEGABYTE = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for one checkpoint of `LargeTrial`, but not for two."""
    with mounted("-t", "tmpfs", "-o", "size=3m", "tmpfs", at=tmp_path / "disk"):
        yield tmp_path / "disk"


class LargeTrial(ResumableTrial):
    """A checkpoint of it has a bit more than a megabyte."""

    ballast = MEGABYTE // 4

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        super().__init__(context)
        layer = nn.Linear(self.ballast, 1, bias=False)
        nn.init.zeros_(layer.weight)
        self.extra = context.wrap_model(layer)


class Emptied(LargeTrial):
    """Somebody makes room before the fifth batch."""

    litter = Path()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 4:
            self.litter.unlink()
        return super().train_batch(batch, epoch_idx, batch_idx)


def train_large(storage: Path, batches: int = 6, **fit: Any) -> Trained:
    fit.setdefault("trial_class", LargeTrial)
    fit.setdefault("checkpoint_period", pytorch.Batch(2))
    return train(storage, batches, latest_checkpoint="latest", **fit)


def hidden(storage: Path) -> list[str]:
    return [
        path.name for path in storage.glob(".*") if path.name not in (".det-locks", ".det-runs")
    ]


class TestFull:
    @pytest.mark.parametrize("background", [True, False])
    def test_training_ends_with_a_message_and_goes_on_when_there_is_room(
        self, small_disk: Path, tmp_path: Path, background: bool
    ) -> None:
        litter = small_disk / "litter"
        litter.write_bytes(bytes(MEGABYTE))
        with pytest.raises(CheckpointError) as caught:
            train_large(small_disk / "storage", async_checkpoint=background)
        message = str(caught.value)
        assert str(small_disk / "storage") in message
        assert "No space left on device" in message
        assert "bytes are needed" in message
        assert "are free" in message
        assert steps(small_disk / "storage") == [2]
        assert hidden(small_disk / "storage") == []
        litter.unlink()
        keep_one = {"exp_conf": {"checkpoint_storage": {"save_trial_latest": 1}}}
        resumed = train_large(small_disk / "storage", 3, init=keep_one)
        assert resumed.ends_like(train_large(tmp_path / "unbroken", 3))

    @pytest.mark.parametrize("background", [True, False])
    def test_by_policy_training_goes_on_and_later_saves_work(
        self,
        small_disk: Path,
        tmp_path: Path,
        background: bool,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        Emptied.litter = small_disk / "litter"
        Emptied.litter.write_bytes(bytes(2 * MEGABYTE + MEGABYTE // 2))
        trained = train_large(
            small_disk / "storage",
            trial_class=Emptied,
            async_checkpoint=background,
            on_checkpoint_error="continue",
        )
        assert "training continues without it" in caplog.text
        # By the fifth batch the first save has failed; the second one may be under way.
        assert steps(small_disk / "storage") in ([6], [4, 6])
        assert trained == train_large(tmp_path / "unbroken")

    def test_a_limit_on_file_sizes_is_an_error_like_any_other(self, tmp_path: Path) -> None:
        done = run_workers(1, _train_with_small_files, tmp_path, process_group=False)
        assert "File too large" in done[0]
        assert str(tmp_path / "storage") in done[0]
        assert steps(tmp_path / "storage") == [2]


def _train_with_small_files(folder: Path) -> str:
    os.chdir(folder / "work")
    train_large(folder / "storage", 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE // 2, MEGABYTE // 2))
    try:
        train_large(folder / "storage", 4)
    except CheckpointError as error:
        return str(error)
    return "no error"


# The n-th call fails.


class Failing:
    """Has the n-th call of an `os` function below a folder fail, in this process."""

    def __init__(self, folder: Path, operation: str, at: int, code: int, times: int = 1) -> None:
        self.calls = 0
        real = getattr(os, operation)

        def call(*args: Any, **kwargs: Any) -> Any:
            if _touches(folder, args[0]):
                self.calls += 1
                if at <= self.calls < at + times:
                    raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        setattr(os, operation, call)


def _touches(folder: Path, target: Any) -> bool:
    if isinstance(target, int):
        target = Path(f"/proc/self/fd/{target}").readlink()
    name = os.fspath(target)
    return str(name).startswith(str(folder)) and ".det-locks" not in str(name)


def _fail(setup: Setup, folder: Path, *failure: Any, tell: Tell) -> Any:
    failing = Failing(folder / "storage", *failure)
    try:
        run(setup, folder, tell)
    except (CheckpointError, OSError) as error:
        return failing.calls, type(error).__name__, str(error)
    return failing.calls, "", ""


OPERATIONS = ("write", "fsync", "rename", "mkdir", "open")
CODES = (errno.ENOSPC, errno.EIO, errno.EDQUOT)


def _fail_everywhere(root: Path, stride: int) -> dict[str, int]:
    """One case for each call that a run makes, or for every n-th of them."""
    preload()
    expected = Child(run, Setup(), root / "unbroken").result()
    cases = surfaced = 0
    for operation in OPERATIONS:
        at = 1
        while True:
            code = CODES[cases % len(CODES)]
            folder = root / f"{operation}-{at}"
            setup = Setup(async_checkpoint=cases % 2 == 0)
            calls, kind, message = Child(_fail, setup, folder, operation, at, code).result()
            if calls < at:
                break
            cases += 1
            what = f"{operation} {at} {errno.errorcode[code]}: {kind} {message}"
            if kind:
                surfaced += 1
                assert os.strerror(code) in message, what
                if kind == "CheckpointError":
                    assert str(folder / "storage") in message, what
            check_storage(folder)
            assert leftovers(folder) == [], what
            assert Child(run, setup, folder).result() == expected, what
            at += stride
    return {"cases": cases, "surfaced": surfaced}


@pytest.mark.multiprocess
@pytest.mark.timeout(DEADLINE_SECONDS * factor() + 60)
def test_an_error_of_any_call_leaves_older_checkpoints_and_the_next_run(tmp_path: Path) -> None:
    (seen,) = run_workers(
        1,
        _fail_everywhere,
        tmp_path,
        9 if factor() == 1 else 1,
        process_group=False,
        deadline_seconds=DEADLINE_SECONDS * factor(),
    )
    print(seen)  # noqa: T201  # which the long form is run for
    assert seen["cases"] >= 15
    assert seen["surfaced"] >= seen["cases"] * 0.8


# Not full, but not well either.


def meddling(act: Callable[[], None]) -> type[ResumableTrial]:
    """Return a trial that does something to the storage after the third batch."""

    class Meddling(ResumableTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            if batch_idx == 3:
                act()
            return super().train_batch(batch, epoch_idx, batch_idx)

    return Meddling


class Moved:
    """Moves a storage away before or after the n-th call of an `os` function, once it is armed."""

    def __init__(self, storage: Path, operation: str, at: int, after: bool) -> None:
        self.is_armed = self.is_done = False
        calls, real, rename = itertools.count(1), getattr(os, operation), os.rename

        def call(*args: Any, **kwargs: Any) -> Any:
            is_now = self.is_armed and next(calls) == at
            if is_now and not after:
                self.is_done, self.is_armed = True, False
                rename(storage, storage.with_name("away"))
            try:
                return real(*args, **kwargs)
            finally:
                if is_now and after:
                    self.is_done, self.is_armed = True, False
                    rename(storage, storage.with_name("away"))

        self.call = call


def _check_moved_away(folder: Path, operation: str, at: int, after: bool) -> bool:
    """Move a storage away at a call of the save after batch 4; False if there is no such call."""
    storage = folder / "storage"
    moved = Moved(storage, operation, at, after)

    class Saving(ResumableTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            moved.is_armed = batch_idx == 3
            return super().train_batch(batch, epoch_idx, batch_idx)

    period: dict[str, Any] = {"checkpoint_period": pytorch.Batch(2), "async_checkpoint": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, operation, moved.call)
        message = _failure_of(lambda: train(storage, 8, trial_class=Saving, **period))
    if moved.is_done:
        assert "still mounted" in message, (operation, at)
        _check_brought_back(folder)
    return moved.is_done


def _failure_of(save: Callable[[], object]) -> str:
    try:
        save()
    except CheckpointError as error:
        return str(error)
    return "no error"


def _check_brought_back(folder: Path) -> None:
    storage = folder / "storage"
    assert not storage.exists()
    (folder / "away").rename(storage)
    assert set(steps(storage)) <= {2, 4}
    resumed = train(storage, 8, latest_checkpoint="latest")
    assert resumed.ends_like(train(folder / "unbroken", 8))
    assert hidden(storage) == []


# Where a message once said less, or the storage was made again; and one of each other kind.
MOVES = [
    ("mkdir", 1, True),
    ("mkdir", 5, True),
    ("open", 14, False),
    ("rename", 1, False),
    ("rename", 1, True),
    ("fsync", 5, False),
    ("write", 2, False),
]


class TestUnwell:
    def test_storage_that_becomes_read_only_is_named(self, tmp_path: Path) -> None:
        with mounted("-t", "tmpfs", "tmpfs", at=tmp_path / "disk"):
            storage = tmp_path / "disk" / "storage"

            def remount(mode: str) -> None:
                subprocess.run(
                    ["mount", "-o", f"remount,{mode}", str(tmp_path / "disk")], check=True
                )

            with pytest.raises(CheckpointError, match=r"Read-only file system.*DET_STORAGE"):
                train(
                    storage,
                    8,
                    trial_class=meddling(lambda: remount("ro")),
                    checkpoint_period=pytorch.Batch(2),
                    async_checkpoint=False,
                )
            assert steps(storage) == [2]
            # Resuming needs no writing; the first save does.
            with pytest.raises(CheckpointError, match="Read-only file system"):
                train(storage, 4, latest_checkpoint="latest")
            remount("rw")
            resumed = train(storage, 4, latest_checkpoint="latest")
        assert resumed.ends_like(train(tmp_path / "unbroken", 4))

    def test_storage_that_may_not_be_written_is_named_before_training(self, tmp_path: Path) -> None:
        storage = tmp_path / "storage"
        train(storage, 2)
        done = subprocess.run(["chattr", "+i", str(storage)], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"chattr +i does not work here: {done.stderr.strip()}")
        try:
            with pytest.raises(CheckpointError, match=r"Cannot .*storage.*not permitted"):
                train(storage, 4, latest_checkpoint="latest")
        finally:
            subprocess.run(["chattr", "-i", str(storage)], check=True)
        assert steps(storage) == [2]
        train(tmp_path / "other", 2)
        expected = train(tmp_path / "other", 4, latest_checkpoint="latest")
        assert train(storage, 4, latest_checkpoint="latest") == expected

    @pytest.mark.parametrize(("operation", "at", "after"), MOVES)
    def test_storage_that_is_moved_away_is_not_started_anew(
        self, tmp_path: Path, operation: str, at: int, after: bool
    ) -> None:
        assert _check_moved_away(tmp_path, operation, at, after)

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    @pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
    def test_so_it_is_at_any_call(self, tmp_path: Path, after: bool) -> None:
        cases, stride = 0, 8 if factor() == 1 else 1
        for operation in (*OPERATIONS, "scandir", "stat"):
            for at in itertools.count(1, stride):
                if not _check_moved_away(tmp_path / f"{operation}-{at}", operation, at, after):
                    break
                cases += 1
        assert cases >= 80 / stride

    @pytest.mark.slow
    @pytest.mark.parametrize("number", range(4 * factor()))
    def test_so_it_is_at_any_moment_in_the_background(self, tmp_path: Path, number: int) -> None:
        storage, away = tmp_path / "storage", tmp_path / "away"
        pause = random.Random(draw_seed()).uniform(0, 0.02)

        def move() -> None:
            eventually(lambda: [*storage.glob("*-*"), *storage.glob(".*.tmp-*")], "a save")
            time.sleep(pause)
            storage.rename(away)

        with pytest.raises(CheckpointError, match="still mounted"):
            train(storage, 8, trial_class=meddling(move), checkpoint_period=pytorch.Batch(2))
        _check_brought_back(tmp_path)

    def test_storage_that_comes_back_is_used_again(self, tmp_path: Path) -> None:
        storage, away = tmp_path / "storage", tmp_path / "away"
        moves = iter([(storage, away), (away, storage)])

        class Flapping(ResumableTrial):
            def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
                if batch_idx in (3, 5):
                    source, target = next(moves)
                    source.rename(target)
                return super().train_batch(batch, epoch_idx, batch_idx)

        trained = train(
            storage,
            8,
            trial_class=Flapping,
            checkpoint_period=pytorch.Batch(2),
            async_checkpoint=False,
            on_checkpoint_error="continue",
        )
        assert steps(storage) == [2, 6, 8]
        assert trained == train(tmp_path / "unbroken", 8)


class SlowStorage(SharedFSStorageManager):
    """Finishes a save when it is allowed to, and counts those that wait."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.may_finish = threading.Semaphore(0)
        self.begun = 0

    def post_store_path(self, *args: Any, **kwargs: Any) -> Manifest:
        self.begun += 1
        assert self.may_finish.acquire(timeout=DEADLINE_SECONDS)
        return super().post_store_path(*args, **kwargs)


def test_with_slow_storage_one_save_waits_and_memory_stays_bounded(tmp_path: Path) -> None:
    storage = SlowStorage(tmp_path / "storage")
    trained: list[int] = []

    class Counting(ResumableTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            trained.append(batch_idx)
            return super().train_batch(batch, epoch_idx, batch_idx)

    seen: list[tuple[int, int]] = []

    def let_go() -> None:
        """Allow one save at a time, when training cannot go on without it."""
        for save in range(1, 6):
            deadline = time.monotonic() + DEADLINE_SECONDS
            expected = min(2 * save + 2, 10)
            while (storage.begun, len(trained)) != (save, expected):
                assert time.monotonic() < deadline, (save, storage.begun, len(trained))
                time.sleep(0.002)
            time.sleep(0.02)  # nothing more happens now
            seen.append((storage.begun, len(trained)))
            storage.may_finish.release()

    opener = threading.Thread(target=let_go)
    opener.start()
    with pytorch.init(seed=7, checkpoint_storage=tmp_path / "storage", run_id="run") as context:
        context._core.checkpoint = core.CheckpointContext(context.distributed, storage)
        trial = Counting(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(10),
            checkpoint_period=pytorch.Batch(2),
            checkpoint_policy="none",
        )
    opener.join()
    assert seen == [(1, 4), (2, 6), (3, 8), (4, 10), (5, 10)]
    assert steps(tmp_path / "storage") == [2, 4, 6, 8, 10]
    assert fingerprint(trial) == train(tmp_path / "unbroken", 10)
