"""An object store in memory, over fsspec, that many threads may use."""

from __future__ import annotations

import threading
from typing import Any

from determined.storage import FsspecStorageManager

_lock = threading.RLock()


class _OneAtATime:
    """fsspec's memory file system shares one position per file, so calls take turns."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._filesystem, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            with _lock:
                return method(*args, **kwargs)

        return call


def build_memory_storage(bucket: str) -> FsspecStorageManager:
    """A new manager of the store of that name; managers of one name see the same objects."""

    def open_filesystem() -> Any:
        import fsspec

        return _OneAtATime(fsspec.filesystem("memory"))

    return FsspecStorageManager(open_filesystem, bucket, protocol="memory")
