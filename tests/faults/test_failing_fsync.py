"""Disks that cannot keep what was written, or take their time: `fsync` fails with EIO, or waits.

The kernel reports such a failure once, and drops what it could not write: a later `fsync` of the
same file succeeds. So nothing may be believed that was written before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from determined import journal
from determined.core.backends.journal import JournalBackend
from determined.errors import CheckpointError, JournalError
from determined.journal import JournalReader, JournalWriter, Progress
from determined.storage import SharedFSStorageManager
from tests.support.failing_disk import FailingDisk, disk
from tests.support.forks import Child
from tests.support.victims import Setup, Tell, check_storage, leftovers, preload, run
from tests.support.waiting import eventually

__all__ = ["disk"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

# What one save waits for, from its first file to its name in the storage.
PLACES = {
    "random states": "*/ranks/rank_0.pth",
    "weights": "*/state_dict.pth",
    "counters": "*/trial_state.pkl",
    "folder of code": "*/code",
    "description": "*/metadata.json",
    "list of files": "*/manifest.json",
    "folder": "*.tmp-" + 32 * "?",
    "name": "*/storage",
}


# A trainer.


def _interrupted(setup: Setup, folder: Path, pattern: str, tell: Tell) -> tuple[str, str]:
    """Train; once there is a checkpoint, the disk fails the next time it is to keep something."""
    disk = FailingDisk.of_this_process()

    def watch() -> None:
        if not disk.is_armed and list((folder / "storage").glob("[!.]*-*")):
            disk.fail_once(pattern)

    try:
        run(setup, folder, watch)
    except (CheckpointError, OSError) as error:
        return type(error).__name__, str(error)
    return "", ""


def _held(setup: Setup, folder: Path, tell: Tell) -> tuple[int, int]:
    """Train while the disk keeps the first save waiting; return how far that went."""
    disk, batches = FailingDisk.of_this_process(), [0, 0]
    disk.hold("*/state_dict.pth")

    def watch() -> None:
        batches[0] += 1
        if batches[0] == setup.interval + 1:
            eventually(lambda: disk.hits, "a save that waits for the disk")
            batches[1] = len(list((folder / "storage").glob("[!.]*-*")))
            disk.heal()

    run(setup, folder, watch)
    return batches[0], batches[1]


def _try_all(root: Path) -> dict[str, Any]:
    preload()
    disk = FailingDisk.of_this_process()
    expected = Child(run, Setup(), root / "unbroken").result()
    told: dict[str, Any] = {}
    for number, (place, pattern) in enumerate(PLACES.items()):
        folder, setup = root / f"case-{number}", Setup(async_checkpoint=number % 2 == 0)
        kind, message = Child(_interrupted, setup, folder, pattern).result()
        told[place] = {"kind": kind, "message": message, "steps": check_storage(folder)}
        told[place]["leftovers"] = leftovers(folder)
        disk.heal()
        told[place]["is exact"] = Child(run, setup, folder).result() == expected
    told["held"] = Child(_held, Setup(), root / "held").result()
    return told


@pytest.mark.timeout(300)
def test_a_save_whose_bytes_may_be_lost_is_an_error_and_leaves_nothing(
    disk: FailingDisk, tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "tests.faults.test_failing_fsync", str(tmp_path / "runs")]
    root = Path(__file__).parents[2]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("held") == [10, 0], "training waits for a slow disk"
    for place, case in told.items():
        assert case["kind"] == "CheckpointError", (place, case)
        assert "Input/output error" in case["message"], (place, case)
        assert case["steps"] == [2], (place, case)
        assert case["leftovers"] == [], (place, case)
        assert case["is exact"], (place, case)


# Parts.


def _fails_once(monkeypatch: pytest.MonkeyPatch, name: str, path: Path) -> list[int]:
    """Have a call for one file fail once; return where its length at each call is noted."""
    real, lengths = getattr(os, name), list[int]()

    def call(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == path:
            lengths.append(os.fstat(descriptor).st_size)
            if len(lengths) == 1:
                raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, name, call)
    return lengths


def test_a_storage_whose_names_may_be_lost_shows_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SharedFSStorageManager(tmp_path / "storage")
    first = storage.pre_store_path("first")
    _fails_once(monkeypatch, "fsync", tmp_path / "storage")
    with pytest.raises(CheckpointError, match="Input/output error"):
        storage.post_store_path(first, "first")
    assert storage.list() == []
    storage.discard(first)
    assert not list((tmp_path / "storage").glob(".first*"))


def test_folders_above_a_storage_must_be_on_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SharedFSStorageManager(tmp_path / "above" / "storage")
    _fails_once(monkeypatch, "fsync", tmp_path / "above")
    with pytest.raises(CheckpointError, match="Input/output error"):
        storage.pre_store_path("first")


def test_a_journal_writes_again_what_the_disk_may_have_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = JournalWriter(tmp_path / "j")
    writer.append([Progress(0.1)])
    writer.sync()
    safe = (tmp_path / "j").stat().st_size
    writer.append([Progress(0.2), Progress(0.3)])
    _fails_once(monkeypatch, "fdatasync", tmp_path / "j")
    with pytest.raises(JournalError, match="Input/output error"):
        writer.sync()
    writer.append([Progress(0.4)])
    content, written = (tmp_path / "j").read_bytes(), list[tuple[int, bytes]]()
    real = os.pwrite

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        written.append((offset, bytes(data)))
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    writer.sync()
    assert written == [(safe, content[safe:])]
    assert (tmp_path / "j").read_bytes() == content
    writer.append([Progress(0.5)])
    writer.sync()
    writer.close()
    assert len(written) == 1
    assert [r.progress for r in JournalReader(tmp_path / "j").records()] == [  # type: ignore[attr-defined]
        *(0.1, 0.2, 0.3, 0.4, 0.5)
    ]


def test_a_journal_that_was_dropped_is_never_called_safe_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems read from the disk again, which shows what was there before."""
    writer = JournalWriter(tmp_path / "j")
    writer.append([Progress(0.1)])
    _fails_once(monkeypatch, "fdatasync", tmp_path / "j")
    with pytest.raises(JournalError, match="Input/output error"):
        writer.sync()
    size = (tmp_path / "j").stat().st_size
    (tmp_path / "j").write_bytes(bytes(size))
    for _ in range(2):
        with pytest.raises(JournalError, match="lost"):
            writer.sync()
    writer.close()


def test_reports_do_not_wait_for_a_save_that_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = JournalBackend(tmp_path, 1, 0)
    real, waits, may_go = os.fdatasync, threading.Event(), threading.Event()

    def slow(descriptor: int) -> None:
        waits.set()
        assert may_go.wait(60)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow)
    saving = threading.Thread(target=backend.before_save, args=("uuid", {"steps_completed": 1}))
    saving.start()
    assert waits.wait(60)
    reporting = threading.Thread(target=backend.report_metrics, args=("training", 2, {"loss": 1.0}))
    reporting.start()
    reporting.join(30)
    is_held = reporting.is_alive()
    may_go.set()
    saving.join()
    reporting.join()
    backend.close()
    assert not is_held
    (path,) = tmp_path.glob("journal-*")
    assert [type(record) for record in JournalReader(path).records()] == [
        *(journal.RunStarted, journal.CheckpointAnnounced, journal.Metrics)
    ]


_STORE = """
import shutil, sys
from pathlib import Path
from determined.errors import StoreError
from determined.store import NewExperiment, Reader, Writer
from tests.support.failing_disk import FailingDisk

home, disk = Path(sys.argv[1]), FailingDisk.of_this_process()
writer = Writer(home)
with writer.transaction(durable=False) as transaction:
    transaction.note("test", "before the failure")
disk.fail_once("*/store.db-wal")
try:
    with writer.transaction() as transaction:
        transaction.note("test", "never")
except StoreError as error:
    print(error)
with writer.transaction() as transaction:
    transaction.note("test", "after the failure")
# What the failed call was to keep is gone from the log after a power cut; all behind it with it.
shutil.copytree(home, home.with_name("cut"), ignore=shutil.ignore_patterns("*-wal", "*-shm"))
writer.close()
print([event.text for event in Reader(home.with_name("cut")).events()])
"""


def test_a_store_does_not_build_on_what_the_disk_may_have_dropped(
    disk: FailingDisk, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", _STORE, str(tmp_path / "home")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    error, events = done.stdout.splitlines()
    assert "disk I/O error" in error
    assert "before the failure" in events
    assert "never" not in events


def main(root: Path) -> None:
    print(json.dumps(_try_all(root)))  # noqa: T201  # the test reads it


if __name__ == "__main__":
    main(Path(sys.argv[1]))
