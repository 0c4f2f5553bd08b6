"""Build the storage that a config, a path or a URL names."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from determined.common.check import CheckFailedError
from determined.errors import CheckpointError
from determined.storage._base import StorageManager
from determined.storage._patterns import EVERYTHING
from determined.storage.local.storage import DirectoryStorageManager, SharedFSStorageManager
from determined.storage.remote.clouds import (
    AzureStorageManager,
    GCSStorageManager,
    S3StorageManager,
)

_TYPES = ("shared_fs", "directory", "s3", "gcs", "azure")
_STORAGE_PATH_KEYS = ("storage_path", "tensorboard_path", "checkpoint_path")
_SHARED_FS_KEYS = {"host_path", "container_path", "propagation", *_STORAGE_PATH_KEYS}
_RETENTION_KEYS = (
    "save_experiment_best",
    "save_trial_best",
    "save_trial_latest",
    "gc",
    "save_frozen",
)


def build(config: Mapping[str, Any], container_path: str | None = None) -> StorageManager:
    """Build the storage that a `checkpoint_storage` section describes.

    `container_path` replaces `host_path` of a shared_fs inside a container. Keys that say how many
    checkpoints to keep are not about storage and are left out.
    """
    keys = dict(config)
    if "type" not in keys:
        raise ValueError(f"Missing 'type' parameter of checkpoint_storage: {keys!r}.")
    kind = keys.pop("type")
    if not isinstance(kind, str):
        raise ValueError(f"`type` of checkpoint_storage must be a string, got {kind!r}.")
    if kind not in _TYPES:
        raise TypeError(f"Unknown storage type: {kind}. Known types: {', '.join(_TYPES)}.")
    for name in _RETENTION_KEYS:
        keys.pop(name, None)
    if kind == "shared_fs":
        return SharedFSStorageManager(_shared_base(keys, container_path))
    if kind == "directory":
        return DirectoryStorageManager(_directory_base(**keys))
    if kind == "s3":
        return S3StorageManager(**keys)
    if kind == "gcs":
        return GCSStorageManager(**keys)
    if "container" not in keys:
        raise ValueError("checkpoint_storage of type azure needs `container`.")
    return AzureStorageManager(**keys)


def _shared_base(keys: Mapping[str, Any], container_path: str | None) -> Path:
    unknown = sorted(set(keys) - _SHARED_FS_KEYS)
    if unknown:
        raise CheckFailedError(f"checkpoint_storage: unknown keys for shared_fs: {unknown}.")
    host_path = keys.get("host_path")
    if not isinstance(host_path, str) or not Path(host_path).is_absolute():
        raise CheckFailedError(f"`host_path` must be an absolute path, got {host_path!r}.")
    inner = next((keys[name] for name in _STORAGE_PATH_KEYS if keys.get(name)), "")
    root = Path(os.path.normpath(host_path))
    joined = Path(os.path.normpath(root / inner))
    if not joined.is_relative_to(root):
        raise CheckFailedError(
            f"`storage_path` must be a subdirectory of `host_path` {host_path}, got {inner!r}."
        )
    return Path(container_path or root) / joined.relative_to(root)


def _directory_base(container_path: str) -> str:
    return container_path


def from_string(shortcut: str) -> StorageManager:
    """Build from a path, `file:///path`, `s3://bucket/prefix` or `gs://bucket/prefix`."""
    url = urlparse(shortcut)
    if url.params or url.query or url.fragment:
        raise ValueError(
            f"A storage URL has no parameters, query or fragment, got {shortcut!r}. For a path "
            "with such characters pass a pathlib.Path."
        )
    if url.scheme in ("", "file"):
        if url.netloc:
            raise ValueError(
                f"A file URL has no host: write file:///absolute/path, got {shortcut!r}."
            )
        if not url.path:
            raise ValueError(f"`checkpoint_storage` must be a path or a URL, got {shortcut!r}.")
        return SharedFSStorageManager(url.path)
    if url.scheme not in ("s3", "gs"):
        raise ValueError(
            f"`checkpoint_storage` {shortcut!r} has the unknown scheme {url.scheme!r}: give a "
            "path, file://, s3:// or gs://, or a config with `type`."
        )
    if not url.netloc:
        raise ValueError(f"A storage URL names a bucket: {url.scheme}://bucket/prefix.")
    remote = S3StorageManager if url.scheme == "s3" else GCSStorageManager
    return remote(bucket=url.netloc, prefix=url.path)


def section_of(storage: str | os.PathLike[str] | Mapping[str, Any] | None) -> dict[str, Any]:
    """The `checkpoint_storage` section that is equivalent to a path, a URL or a section.

    Anything else gives an empty one: using it raises the error.
    """
    if isinstance(storage, Mapping):
        return dict(storage)
    if storage is None:
        storage = default_location()
    elif not isinstance(storage, (str, os.PathLike)):
        return {}
    text = os.fspath(storage)
    url = urlparse(text) if isinstance(storage, str) else urlparse("")
    if url.scheme in ("s3", "gs"):
        kind = "s3" if url.scheme == "s3" else "gcs"
        prefix = url.path.strip("/")
        return {"type": kind, "bucket": url.netloc} | ({"prefix": prefix} if prefix else {})
    path = url.path if url.scheme == "file" else text
    return {"type": "shared_fs", "host_path": str(Path(path).absolute())}


def validate_manager(manager: StorageManager) -> None:
    """Store, restore and delete a small checkpoint, so that bad storage shows at the start."""
    storage_id = str(uuid.uuid4())
    text = "determined checkpoint storage check\n"
    with manager.store_path(storage_id) as path:
        (path / "VALIDATE.txt").write_text(text)
    with manager.restore_path(storage_id) as path:
        found = (path / "VALIDATE.txt").read_text()
    manager.delete(storage_id, [EVERYTHING])
    if found != text:
        raise CheckpointError(f"{manager.location} returned {found!r} for {text!r}.")


def validate_config(config: Mapping[str, Any], container_path: str | None = None) -> None:
    """As `validate_manager`, for the storage that a config describes."""
    validate_manager(build(config, container_path))


def default_location() -> str:
    """Where checkpoints go by default: DET_STORAGE, else the user's data directory."""
    import platformdirs

    return os.environ.get("DET_STORAGE") or platformdirs.user_data_dir("determined")
