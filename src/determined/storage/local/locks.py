"""Which process is using a folder: advisory locks that the kernel releases when it dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path


class FolderLock:
    """A held lock; `release` gives it back and removes the lock file if nobody else holds it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def share(cls, path: Path) -> FolderLock:
        """Hold `path` together with other readers; wait for an exclusive holder to finish."""
        lock = cls._acquire(path, fcntl.LOCK_SH)
        assert lock is not None  # a blocking request cannot be refused
        return lock

    @classmethod
    def try_exclusive(cls, path: Path) -> FolderLock | None:
        """Hold `path` alone, or return None when someone else holds it."""
        return cls._acquire(path, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @classmethod
    def _acquire(cls, path: Path, kind: int) -> FolderLock | None:
        with contextlib.suppress(FileExistsError):  # `exist_ok` raises it if it vanishes just then
            path.parent.mkdir()
        if path.parent.is_symlink():  # it would make us create files elsewhere
            raise OSError(errno.ELOOP, "The folder of locks is a symbolic link", str(path.parent))
        access = os.O_RDONLY  # a file that is open for writing keeps a disk from being remounted
        while True:
            flags = access | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(path, flags, 0o666)
            try:
                fcntl.flock(descriptor, kind)
                # The last holder may have removed the file between our open and our lock.
                if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
                    return cls(path, descriptor)
            except BlockingIOError:
                os.close(descriptor)
                return None
            except OSError as error:
                os.close(descriptor)
                if error.errno != errno.EBADF or access == os.O_RDWR:
                    raise
                access = os.O_RDWR  # NFS locks only what may be written
                continue
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def release(self) -> None:
        """Release the lock. Forked children hold the same lock, so unlock before closing."""
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._path.unlink(missing_ok=True)
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
