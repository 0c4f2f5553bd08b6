"""Object stores: the manifest is the commit, errors are named, nothing half-done counts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from determined.errors import (
    CheckpointError,
    CheckpointNotFound,
    InvalidCheckpointException,
    NoDirectStorageAccess,
)
from determined.storage import FsspecStorageManager, S3StorageManager
from determined.storage._base import tag_of
from determined.storage._manifest import Contents
from tests.support.memory_storage import build_memory_storage

BuildS3 = Callable[..., S3StorageManager]


class FlakyFilesystem:
    """An fsspec file system whose chosen calls fail for a while."""

    def __init__(self, inner: Any, method: str, errors: list[Exception]) -> None:
        self._inner, self._method, self._errors = inner, method, errors
        self.calls: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, str(args[-1] if name == "put_file" else (*args, "")[0])))
            if name == self._method and self._errors:
                raise self._errors.pop(0)
            return real(*args, **kwargs)

        return call


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def flaky(method: str, errors: list[Exception]) -> tuple[FsspecStorageManager, FlakyFilesystem]:
    import fsspec

    filesystem = FlakyFilesystem(fsspec.filesystem("memory"), method, errors)
    root = f"bucket-{os.urandom(4).hex()}"
    return FsspecStorageManager(lambda: filesystem, root, protocol="memory"), filesystem


def write(folder: Path) -> Path:
    folder.mkdir()
    (folder / "weights").write_bytes(b"w" * 100)
    (folder / "metadata.json").write_bytes(b"{}")
    return folder


@pytest.mark.usefixtures("no_pauses")
class TestRetry:
    @pytest.mark.parametrize("method", ["put_file", "pipe_file", "get_file", "cat_file", "find"])
    def test_passing_trouble_is_overcome(self, tmp_path: Path, method: str) -> None:
        manager, _ = flaky(method, [ConnectionError("reset"), TimeoutError("slow"), OSError("?")])
        manager.upload(write(tmp_path / "src"), "one")
        with manager.restore_path("one") as path:
            assert (path / "weights").read_bytes() == b"w" * 100

    def test_lasting_trouble_names_url_and_file(self, tmp_path: Path) -> None:
        manager, filesystem = flaky("put_file", [ConnectionError("reset")] * 99)
        with pytest.raises(
            CheckpointError,
            match=r"memory://bucket-\w+/one/weights: gave up after 4 attempts.*reset",
        ):
            manager.upload(write(tmp_path / "src"), "one")
        assert manager.list() == []
        assert sum(name == "put_file" for name, _ in filesystem.calls) == 4

    def test_refusal_is_not_retried(self, tmp_path: Path) -> None:
        manager, filesystem = flaky("put_file", [PermissionError("AccessDenied")] * 99)
        with pytest.raises(NoDirectStorageAccess, match="weights.*AccessDenied"):
            manager.upload(write(tmp_path / "src"), "one")
        assert sum(name == "put_file" for name, _ in filesystem.calls) == 1

    def test_the_manifest_goes_up_last_and_goes_first(self, tmp_path: Path) -> None:
        manager, filesystem = flaky("", [])
        manager.upload(write(tmp_path / "src"), "one")
        written = [path for name, path in filesystem.calls if name in ("put_file", "pipe_file")]
        assert [path.rsplit("/", 1)[1] for path in written] == [
            "weights",
            "metadata.json",
            "manifest.json",
        ]
        filesystem.calls.clear()
        manager.delete("one", ["**/*"])
        removed = [path for name, path in filesystem.calls if name == "rm_file"]
        assert removed[0].endswith("/one/manifest.json")
        assert len(removed) == 3

    def test_an_upload_that_fails_is_cleared_away(self, tmp_path: Path) -> None:
        manager, _ = flaky("pipe_file", [ConnectionError("reset")] * 99)
        with pytest.raises(CheckpointError, match="manifest.json"):
            manager.upload(write(tmp_path / "src"), "one")
        with pytest.raises(CheckpointNotFound):
            manager.resources("one")


class TestS3:
    def test_an_upload_without_manifest_is_no_checkpoint(
        self, build_s3: BuildS3, tmp_path: Path
    ) -> None:
        manager = build_s3()
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "state_dict.pth").write_bytes(b"x")
        manager.put(tmp_path / "src", manager.begin("one"))
        assert manager.list() == []
        with pytest.raises(InvalidCheckpointException, match="never completed"):
            manager.download("one", tmp_path / "out")
        assert not (tmp_path / "out").exists()
        manager.download("one", tmp_path / "out", verify=False)
        assert (tmp_path / "out" / "state_dict.pth").exists()

    def test_damage_is_found_on_the_way_down(self, build_s3: BuildS3, tmp_path: Path) -> None:
        manager = build_s3()
        manager.upload(write(tmp_path / "src"), "one")
        key = manager._key("one", "weights")
        manager._filesystem.pipe_file(key, b"W" * 100)
        with pytest.raises(InvalidCheckpointException, match="weights is damaged"):
            manager.download("one", tmp_path / "out")
        assert not (tmp_path / "out").exists()
        manager._filesystem.pipe_file(key, b"w")
        with pytest.raises(InvalidCheckpointException, match="weights has 1 bytes instead of 100"):
            manager.verify("one")

    def test_keys_are_prefix_id_path(self, build_s3: BuildS3, tmp_path: Path) -> None:
        manager = build_s3(prefix="/a/b/")
        src = write(tmp_path / "src")
        (src / "empty").mkdir()
        manager.upload(src, "one")
        bucket = manager._root.split("/")[0]
        names = sorted(name.partition("/")[2] for name in manager._filesystem.find(bucket))
        assert names == [
            "a/b/one/empty/",
            "a/b/one/manifest.json",
            "a/b/one/metadata.json",
            "a/b/one/weights",
        ]
        manager.delete("one", ["**/*"])
        assert manager._filesystem.find(bucket) == []

    @pytest.mark.slow
    def test_a_large_file_goes_up_in_parts(self, build_s3: BuildS3, tmp_path: Path) -> None:
        manager = build_s3()
        (tmp_path / "src").mkdir()
        with (tmp_path / "src" / "big").open("wb") as file:
            file.truncate(120 << 20)
        manager.upload(tmp_path / "src", "one")
        assert manager.resources("one") == {"big": 120 << 20}
        assert manager.list()[0].manifest.contents.files["big"].size == 120 << 20

    def test_a_missing_bucket_is_named(self, build_s3: BuildS3, tmp_path: Path) -> None:
        manager = build_s3(bucket="no-such-bucket")
        with pytest.raises(CheckpointError, match="no-such-bucket"):
            manager.upload(write(tmp_path / "src"), "one")

    @pytest.mark.usefixtures("no_pauses")
    def test_an_unreachable_endpoint_fails_on_use_with_its_url(self, tmp_path: Path) -> None:
        manager = S3StorageManager("bucket", "key", "secret", "http://127.0.0.1:9")
        with pytest.raises(CheckpointError, match=r"s3://bucket/one.*attempts.*127.0.0.1:9"):
            manager.upload(write(tmp_path / "src"), "one")

    def test_no_credentials_is_a_refusal(
        self, s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in list(os.environ):
            if name.startswith("AWS_"):
                monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        manager = S3StorageManager("bucket", endpoint_url=s3_endpoint)
        with pytest.raises(NoDirectStorageAccess, match="credentials"):
            manager.upload(write(tmp_path / "src"), "one")

    @pytest.mark.multiprocess
    @pytest.mark.parametrize("crash_point", ["mid_write", "before_manifest"])
    def test_kill_during_upload_shows_nothing(
        self, build_s3: BuildS3, s3_endpoint: str, tmp_path: Path, crash_point: str
    ) -> None:
        manager = build_s3(prefix=None)
        manager.upload(write(tmp_path / "src"), "first")
        script = (
            "import sys; from determined.storage import S3StorageManager\n"
            "manager = S3StorageManager(sys.argv[1], 'key', 'secret', sys.argv[2])\n"
            "manager.upload(sys.argv[3], 'second')"
        )
        arguments = [manager._root, s3_endpoint, str(tmp_path / "src")]
        process = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env={**os.environ, "DET_TEST_CRASH_POINT": crash_point},
            timeout=60,
        )
        assert process.returncode == -9
        assert [c.storage_id for c in manager.list()] == ["first"]
        manager.delete("second", ["**/*"])
        manager.upload(tmp_path / "src", "second")
        assert [c.storage_id for c in manager.list()] == ["first", "second"]

    @pytest.mark.multiprocess
    def test_a_forked_process_opens_its_own_connection(self, build_s3: BuildS3) -> None:
        manager = build_s3()
        with manager.store_path("one") as path:
            (path / "x").write_bytes(b"x")
        first = manager._filesystem
        manager._opened = (os.getpid() + 1, first)  # as after a fork
        assert manager._filesystem is not first
        assert manager.verify("one")


def test_one_listing_tags_only_so_many_untagged_checkpoints() -> None:
    manager = build_memory_storage(f"bucket-{os.urandom(4).hex()}")
    names = [f"{number:03}" for number in range(203)]
    for name in names:
        manager.commit(manager.begin(name), name, Contents(), {"run_id": "run"})
        manager._untag(name, tag_of("run"))
    for num_tagged in (200, 203):
        assert [c.storage_id for c in manager.list("run")] == names
        assert len(manager._tags()) == num_tagged
