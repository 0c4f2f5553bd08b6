"""The storage managers under the path by which existing code imports them."""

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
    "from_string",
    "validate_config",
    "validate_manager",
]
