"""Where checkpoint bytes live: local folders with atomic saves, object stores through fsspec.

What is in a checkpoint is decided in `determined.pytorch`, when to save and restore in
`determined.core`. Read `_base.py` first, then `local/storage.py`.
"""

from determined.storage._base import (
    CheckpointInUseError,
    Selector,
    StorageManager,
    StoredCheckpoint,
    check_storage_id,
)
from determined.storage._build import (
    build,
    default_location,
    from_string,
    section_of,
    validate_config,
    validate_manager,
)
from determined.storage._durable import FileDigest, HashingFile
from determined.storage._manifest import Contents, Manifest
from determined.storage._patterns import remaining
from determined.storage._retention import RetentionPolicy, apply_retention
from determined.storage.local.storage import DirectoryStorageManager, SharedFSStorageManager
from determined.storage.remote.clouds import (
    AzureStorageManager,
    GCSStorageManager,
    S3StorageManager,
)
from determined.storage.remote.storage import FsspecStorageManager

__all__ = [
    "AzureStorageManager",
    "CheckpointInUseError",
    "Contents",
    "DirectoryStorageManager",
    "FileDigest",
    "FsspecStorageManager",
    "GCSStorageManager",
    "HashingFile",
    "Manifest",
    "RetentionPolicy",
    "S3StorageManager",
    "Selector",
    "SharedFSStorageManager",
    "StorageManager",
    "StoredCheckpoint",
    "apply_retention",
    "build",
    "check_storage_id",
    "default_location",
    "from_string",
    "remaining",
    "section_of",
    "validate_config",
    "validate_manager",
]
