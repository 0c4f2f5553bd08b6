"""Every kind of storage, real: folders on disk, fsspec file systems, S3 over HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from determined.storage import (
    DirectoryStorageManager,
    S3StorageManager,
    SharedFSStorageManager,
    StorageManager,
)
from tests.support.memory_storage import build_memory_storage


@pytest.fixture
def build_s3(s3_endpoint: str, s3_client: Any, tmp_path: Path) -> Callable[..., S3StorageManager]:
    """Returns a function that makes a manager over a fresh bucket, or over a given one."""

    def build(bucket: str | None = None, prefix: str | None = "some/prefix") -> S3StorageManager:
        if bucket is None:
            bucket = f"bucket-{uuid.uuid4()}"
            s3_client.create_bucket(Bucket=bucket)
        temp_dir = tmp_path / "s3-temp"
        temp_dir.mkdir(exist_ok=True)
        return S3StorageManager(
            bucket, "key", "secret", s3_endpoint, prefix=prefix, temp_dir=temp_dir
        )

    return build


@pytest.fixture(params=["shared_fs", "directory", "fsspec", "s3"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> StorageManager:
    if request.param == "shared_fs":
        return SharedFSStorageManager(tmp_path / "store")
    if request.param == "directory":
        return DirectoryStorageManager(tmp_path / "store")
    if request.param == "fsspec":
        return build_memory_storage(f"bucket-{uuid.uuid4()}/prefix")
    manager: S3StorageManager = request.getfixturevalue("build_s3")()
    return manager
