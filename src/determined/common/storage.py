"""The storage managers under the path by which existing code imports them."""

from collections.abc import Mapping
from typing import Any

from determined.storage import (
    AzureStorageManager,
    DirectoryStorageManager,
    GCSStorageManager,
    S3StorageManager,
    SharedFSStorageManager,
    StorageManager,
    build,
    from_string,
    validate_config,
    validate_manager,
)

__all__ = [
    "AzureStorageManager",
    "DirectoryStorageManager",
    "GCSStorageManager",
    "S3StorageManager",
    "SharedFSStorageManager",
    "StorageManager",
    "build",
    "from_config",
    "from_string",
    "validate_config",
    "validate_manager",
]


def from_config(config: Mapping[str, Any], container_path: str | None = None) -> StorageManager:
    """Build the storage that a `checkpoint_storage` section describes; another name of `build`."""
    return build(config, container_path)
