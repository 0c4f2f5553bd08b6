"""A storage that cannot be written is found before training, with one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined import pytorch
from determined.errors import CheckpointError
from determined.storage import FsspecStorageManager, S3StorageManager
from tests.support.faults import mounted
from tests.support.memory_storage import build_memory_storage
from tests.support.messages import documented


def refused(storage: Path) -> str:
    with pytest.raises(CheckpointError) as raised, pytorch.init(checkpoint_storage=storage):
        pytest.fail("the storage was not looked at")
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_a_read_only_storage_is_found_at_the_start(tmp_path: Path) -> None:
    with mounted("-t", "tmpfs", "-o", "ro", "tmpfs", at=tmp_path / "disk"):
        for storage in (tmp_path / "disk", tmp_path / "disk" / "new"):
            assert "Read-only file system" in refused(storage)
        documented("the storage is read-only", refused(storage), storage)


def test_a_storage_below_a_file_is_found_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = refused(tmp_path / "file" / "storage")
    documented("the storage cannot be made", said, tmp_path / "file" / "storage")


def test_a_missing_bucket_is_found_at_the_start(s3_endpoint: str, tmp_path: Path) -> None:
    storage = S3StorageManager("no-such-bucket", "key", "secret", s3_endpoint)
    with pytest.raises(CheckpointError, match="no-such-bucket.*Does the bucket exist"):
        storage.check()


def test_looking_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytorch.init(checkpoint_storage=tmp_path / "storage") as context:
        assert context._core.checkpoint._storage.list() == []
    left = {path.name for path in (tmp_path / "storage").rglob("*")}
    assert left <= {".det-locks"}
    remote = build_memory_storage(f"bucket-{tmp_path.name}")
    remote.check()
    assert remote._names() == []
    assert remote._filesystem.find(f"bucket-{tmp_path.name}") == []


def test_a_missing_folder_for_temporary_files_is_made(tmp_path: Path) -> None:
    remote = build_memory_storage(f"bucket-{tmp_path.name}")
    storage = FsspecStorageManager(
        remote._open_filesystem, remote._root, protocol="memory", temp_dir=tmp_path / "a" / "b"
    )
    with storage.store_path("one") as path:
        assert path.parent == tmp_path / "a" / "b"
        (path / "file").write_text("x")
    (tmp_path / "a" / "b").rmdir()
    assert storage.verify("one")
    with storage.restore_path("one") as path:
        assert (path / "file").read_text() == "x"
