"""Saves to a file system are whole or absent, whatever happens in between."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from determined.errors import CheckpointError, CheckpointNotFound, InvalidCheckpointException
from determined.storage import CheckpointInUseError, HashingFile, SharedFSStorageManager

DEADLINE_SECONDS = 60

SAVE = """
import sys
from pathlib import Path
from determined.storage import HashingFile, SharedFSStorageManager
manager = SharedFSStorageManager(sys.argv[1])
path = manager.pre_store_path("second")
(path / "code").mkdir()
(path / "code" / "main.py").write_text("pass")
known = {}
with HashingFile(path / "weights") as file:
    for _ in range(4):
        file.write(bytes(1 << 20))
known["weights"] = file.digest
manager.post_store_path(path, "second", metadata={"steps_completed": 2}, known=known)
"""

DELETE = """
import sys
from determined.storage import SharedFSStorageManager
SharedFSStorageManager(sys.argv[1]).delete("first", ["**/*"])
"""


def run(script: str, root: Path, crash_point: str | None = None) -> int:
    environment = dict(os.environ)
    if crash_point is not None:
        environment["DET_TEST_CRASH_POINT"] = crash_point
    return subprocess.run(
        [sys.executable, "-c", script, str(root)], env=environment, timeout=DEADLINE_SECONDS
    ).returncode


def save(
    manager: SharedFSStorageManager, name: str, steps: int, content: bytes = b"w" * 99
) -> None:
    path = manager.pre_store_path(name)
    try:
        (path / "code").mkdir()
        (path / "code" / "main.py").write_bytes(b"pass")
        with HashingFile(path / "weights") as file:
            file.write(content)
        manager.post_store_path(
            path,
            name,
            metadata={"steps_completed": steps, "run_id": "run"},
            known={"weights": file.digest},
        )
    except BaseException:
        manager.discard(path)
        raise


def visible(manager: SharedFSStorageManager) -> list[str]:
    return [checkpoint.storage_id for checkpoint in manager.list()]


def hidden(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if ".tmp-" in path.name or ".del-" in path.name]


@pytest.fixture
def store(tmp_path: Path) -> SharedFSStorageManager:
    manager = SharedFSStorageManager(tmp_path / "store")
    save(manager, "first", 1)
    return manager


def _needs_replaceable_rename() -> None:
    if sys.version_info < (3, 11):
        pytest.skip("pathlib of Python 3.10 keeps its own reference to os.rename")


class TestCrash:
    @pytest.mark.multiprocess
    @pytest.mark.parametrize(
        ("crash_point", "is_saved"),
        [
            ("before_tmp", False),
            ("mid_write:2", False),
            ("before_fsync", False),
            ("before_fsync:4", False),
            ("before_manifest", False),
            ("before_rename", False),
            ("after_rename", True),
        ],
    )
    def test_kill_during_save_shows_whole_checkpoints_only(
        self, store: SharedFSStorageManager, tmp_path: Path, crash_point: str, is_saved: bool
    ) -> None:
        root = tmp_path / "store"
        assert run(SAVE, root, crash_point) == -signal.SIGKILL
        newest = store.latest()
        assert newest is not None
        assert newest.storage_id == ("second" if is_saved else "first")
        assert visible(store) == (["first", "second"] if is_saved else ["first"])
        assert all(store.verify(name) for name in visible(store))

        after = SharedFSStorageManager(root)
        save(after, "third", 3)
        assert hidden(root) == []
        assert list((root / ".det-locks").iterdir()) == []
        assert visible(after)[-1] == "third"

    @pytest.mark.multiprocess
    def test_kill_during_delete_hides_the_checkpoint_at_once(
        self, store: SharedFSStorageManager, tmp_path: Path
    ) -> None:
        save(store, "other", 2)
        assert run(DELETE, tmp_path / "store", "mid_gc") == -signal.SIGKILL
        assert visible(store) == ["other"]
        assert len(hidden(tmp_path / "store")) == 1
        store.sweep()
        assert hidden(tmp_path / "store") == []

    @pytest.mark.multiprocess
    def test_a_stage_of_a_live_process_is_not_swept(
        self, store: SharedFSStorageManager, tmp_path: Path
    ) -> None:
        script = (
            "import sys; from determined.storage import SharedFSStorageManager\n"
            "path = SharedFSStorageManager(sys.argv[1]).pre_store_path('slow')\n"
            "print('ready', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "store")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            store.sweep()
            assert len(hidden(tmp_path / "store")) == 1
            process.kill()
            process.wait(DEADLINE_SECONDS)
        store.sweep()
        assert hidden(tmp_path / "store") == []

    @pytest.mark.multiprocess
    def test_a_checkpoint_in_use_is_not_deleted(
        self, store: SharedFSStorageManager, tmp_path: Path
    ) -> None:
        script = (
            "import sys; from determined.storage import SharedFSStorageManager\n"
            "with SharedFSStorageManager(sys.argv[1]).restore_path('first'):\n"
            "    print('ready', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "store")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            with pytest.raises(CheckpointInUseError, match="first"):
                store.delete("first", ["**/*"])
            with store.restore_path("first"):
                pass
            process.communicate(timeout=DEADLINE_SECONDS)
        assert store.delete("first", ["**/*"]) == {}
        assert list((tmp_path / "store" / ".det-locks").iterdir()) == []

    def test_everything_is_on_disk_before_it_is_visible(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _needs_replaceable_rename()
        synced: set[int] = set()
        visible_at: list[set[int]] = []
        real_fsync, real_rename = os.fsync, os.rename

        def fsync(descriptor: int) -> None:
            synced.add(os.fstat(descriptor).st_ino)
            real_fsync(descriptor)

        def rename(*paths: Any) -> None:
            visible_at.append(set(synced))
            synced.clear()
            real_rename(*paths)

        manager = SharedFSStorageManager(tmp_path / "store")
        manager.sweep()
        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "rename", rename)
        save(manager, "first", 1)
        folder = tmp_path / "store" / "first"
        inodes = {path.stat().st_ino for path in [folder, *folder.rglob("*")]}
        assert len(visible_at) == 1
        assert inodes <= visible_at[0]
        assert (tmp_path / "store").stat().st_ino in synced


class TestTrouble:
    @pytest.mark.parametrize("operation", ["write", "fsync", "rename", "mkdir", "open"])
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES])
    def test_an_error_at_any_step_leaves_older_checkpoints_and_the_next_save(
        self,
        store: SharedFSStorageManager,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        operation: str,
        code: int,
    ) -> None:
        if operation == "rename":
            _needs_replaceable_rename()
        for failing_call in range(1, 200):
            if not self._fails(store, monkeypatch, operation, failing_call, code):
                break
            assert hidden(tmp_path / "store") == []
            names = visible(store)
            assert "first" in names
            assert all(store.verify(name) for name in names)
            store.delete("second", ["**/*"])  # visible if only the last flush failed
        else:
            pytest.fail("every save failed")
        assert failing_call > 1
        assert visible(store) == ["first", "second"]

    def _fails(
        self,
        store: SharedFSStorageManager,
        monkeypatch: pytest.MonkeyPatch,
        operation: str,
        failing_call: int,
        code: int,
    ) -> bool:
        real: Callable[..., Any] = getattr(os, operation)
        calls = 0

        def fail_once(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            target = os.fspath(args[0]) if not isinstance(args[0], int) else ""
            if ".det-locks" not in str(target):  # locks are optional
                calls += 1
                if calls == failing_call:
                    raise OSError(code, os.strerror(code), target or None)
            return real(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(os, operation, fail_once)
            failure: Exception | None = None
            try:
                save(store, "second", 2)
            except (CheckpointError, OSError) as error:
                failure = error
        if isinstance(failure, CheckpointError):  # an OSError came from the body of `save`
            assert os.strerror(code) in str(failure)
            assert str(store.location) in str(failure)
        return calls >= failing_call

    def test_a_full_disk_is_named_with_what_is_needed(
        self, store: SharedFSStorageManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(CheckpointError, match=r"weights.*99 bytes are needed.*are free"):
            save(store, "second", 2)

    def test_a_vanished_root_is_not_started_anew(
        self, store: SharedFSStorageManager, tmp_path: Path
    ) -> None:
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        with pytest.raises(CheckpointError, match="still mounted"):
            save(store, "second", 2)
        assert not (tmp_path / "store").exists()
        (tmp_path / "elsewhere").rename(tmp_path / "store")
        save(store, "second", 2)
        assert visible(store) == ["first", "second"]

    def test_a_file_that_was_written_must_be_there_in_the_end(
        self, store: SharedFSStorageManager
    ) -> None:
        path = store.pre_store_path("second")
        with HashingFile(path / "weights") as file:
            file.write(b"content")
        (path / "weights").unlink()
        with pytest.raises(
            CheckpointError, match=r"weights was written, but has disappeared.*mounted"
        ):
            store.post_store_path(path, "second", known={"weights": file.digest})
        store.discard(path)
        assert visible(store) == ["first"]

    def test_a_file_in_the_way_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(CheckpointError, match="file/store"):
            SharedFSStorageManager(tmp_path / "file" / "store").begin("one")


class TestAddressing:
    def test_an_absolute_path_is_restored_but_never_deleted(
        self, store: SharedFSStorageManager, tmp_path: Path
    ) -> None:
        other = SharedFSStorageManager(tmp_path / "other")
        folder = tmp_path / "store" / "first"
        with other.restore_path(folder) as path:
            assert path == folder
        other.download(str(folder), tmp_path / "out")
        assert (tmp_path / "out" / "weights").exists()
        assert other.get_metadata(folder)["steps_completed"] == 1
        with pytest.raises(ValueError, match="storage_id"):
            other.delete(str(folder), ["**/*"])

    def test_a_link_in_place_of_a_checkpoint_is_refused(
        self, store: SharedFSStorageManager, tmp_path: Path
    ) -> None:
        (tmp_path / "store" / "link").symlink_to(tmp_path)
        with pytest.raises(InvalidCheckpointException, match="symbolic link"):
            store.verify("link")
        with pytest.raises(InvalidCheckpointException, match="symbolic link"):
            store.delete("link", ["**/*"])
        assert visible(store) == ["first"]

    def test_foreign_things_in_the_root_are_left_alone(
        self, store: SharedFSStorageManager, tmp_path: Path
    ) -> None:
        root = tmp_path / "store"
        (root / "notes.txt").write_text("mine")
        (root / "tensorboard").mkdir()
        (root / ".hidden").mkdir()
        (root / "odd:name").mkdir()
        store.sweep()
        assert visible(store) == ["first"]
        assert {path.name for path in root.iterdir()} == {
            "notes.txt",
            "tensorboard",
            ".hidden",
            "odd:name",
            ".det-locks",
            ".det-runs",
            "first",
        }

    def test_a_checkpoint_of_another_release_is_accepted_unverified(
        self, store: SharedFSStorageManager, tmp_path: Path
    ) -> None:
        old = tmp_path / "store" / "old"
        old.mkdir()
        with pytest.raises(InvalidCheckpointException, match="not a checkpoint"):
            store.verify("old")
        (old / "state_dict.pth").write_bytes(b"x")
        assert not store.verify("old")
        with store.restore_path("old") as path:
            assert path == old
        assert visible(store) == ["first"]

    def test_links_to_files_are_stored_as_files(
        self, store: SharedFSStorageManager, tmp_path: Path
    ) -> None:
        (tmp_path / "target").write_bytes(b"content")
        with store.store_path("linked") as path:
            (path / "link").symlink_to(tmp_path / "target")
        with store.restore_path("linked") as path:
            assert not (path / "link").is_symlink()
            assert (path / "link").read_bytes() == b"content"

    @pytest.mark.parametrize("kind", ["folder", "nothing", "pipe"])
    def test_what_is_not_a_file_cannot_be_saved(
        self, store: SharedFSStorageManager, tmp_path: Path, kind: str
    ) -> None:
        path = store.pre_store_path("new")
        if kind == "pipe":
            os.mkfifo(path / "odd")
        else:
            (path / "odd").symlink_to(tmp_path if kind == "folder" else tmp_path / "nothing")
        with pytest.raises(CheckpointError, match="odd"):
            store.post_store_path(path, "new")
        store.discard(path)
        assert visible(store) == ["first"]
        assert hidden(tmp_path / "store") == []

    def test_a_file_changed_after_it_was_hashed_is_hashed_again(
        self, store: SharedFSStorageManager
    ) -> None:
        path = store.pre_store_path("edited")
        with HashingFile(path / "weights") as file:
            file.write(b"before")
        (path / "weights").write_bytes(b"after!")
        os.utime(path / "weights", ns=(1, 1))
        store.post_store_path(path, "edited", known={"weights": file.digest})
        assert store.verify("edited")

    def test_stored_files_are_readable_by_others(
        self, store: SharedFSStorageManager, tmp_path: Path
    ) -> None:
        previous = os.umask(0o022)
        try:
            save(store, "second", 2)
        finally:
            os.umask(previous)
        folder = tmp_path / "store" / "second"
        assert folder.stat().st_mode & 0o777 == 0o755
        assert (folder / "weights").stat().st_mode & 0o777 == 0o644

    def test_missing_checkpoint_names_the_root(self, store: SharedFSStorageManager) -> None:
        with pytest.raises(CheckpointNotFound, match=f"nope in {store.location}"):
            store.verify("nope")
