"""Hidden files next to checkpoints: stages being written, trash being removed, locks."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from determined._os.weak_file_systems import chmod
from determined.errors import CheckpointError
from determined.storage._base import CheckpointInUseError
from determined.storage._crash_points import reach
from determined.storage._durable import sync_path
from determined.storage.local.locks import FolderLock

logger = logging.getLogger("determined.storage")

LOCKS = ".det-locks"
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
_STAGE = re.compile(r"\.[^/]+\.tmp-[0-9a-f]{32}")
_TRASH = re.compile(r"\.[^/]+\.del-[0-9a-f]{32}")


class HiddenFolders:
    """The stages, the trash and the locks below one base folder.

    A lock tells other processes that a stage is being written, or that a checkpoint is being read;
    the kernel releases it when the process dies, and then a sweep removes what is left.
    """

    def __init__(self, base: Path) -> None:
        self._base = base
        self._stage_locks: dict[str, FolderLock] = {}

    def make_locks(self) -> None:
        """Create the folder of locks, for whoever may write to the storage."""
        if not (self._base / LOCKS).exists():
            (self._base / LOCKS).mkdir(exist_ok=True)
            share_like(self._base, self._base / LOCKS)

    # Stages.

    def make_stage(self, stage: str) -> None:
        """Create the folder of a stage, which stays locked until it is released or removed."""
        # Locked before it exists, so that no other process ever takes it for stale.
        lock = self._lock_stage(stage)
        if lock is not None:
            self._stage_locks[stage] = lock
        try:
            (self._base / stage).mkdir()
        except BaseException:
            self.release_stage(stage)
            raise

    def _lock_stage(self, stage: str) -> FolderLock | None:
        try:
            return FolderLock.try_exclusive(self._base / LOCKS / stage)
        except OSError as error:
            if not self._base.is_dir():
                raise
            logger.debug("Could not lock %s: %s", stage, error)  # then no sweep can either
            return None

    def release_stage(self, stage: str) -> None:
        """Release the lock of a stage."""
        lock = self._stage_locks.pop(stage, None)
        if lock is not None:
            lock.release()

    def remove_stage(self, stage: str) -> None:
        """Remove a stage that will not become a checkpoint."""
        _remove_tree(self._base / stage)
        self.release_stage(stage)

    # Checkpoints in use, or to be removed.

    @contextlib.contextmanager
    def alone_with(self, storage_id: str) -> Iterator[None]:
        """Lock a checkpoint exclusively; CheckpointInUseError if a process is reading it."""
        try:
            lock = FolderLock.try_exclusive(self._base / LOCKS / storage_id)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise CheckpointError(
                    f"Cannot lock checkpoint {storage_id} in {self._base} to delete it: {error}."
                ) from error
            yield  # a file system without locks: readers cannot be known
            return
        if lock is None:
            raise CheckpointInUseError(
                f"Checkpoint {storage_id} in {self._base} is being restored by a live process; "
                "delete it later."
            )
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def reading(self, folder: Path) -> Iterator[None]:
        """Protect a checkpoint, here or in another storage, from deletion in the `with` block."""
        lock = None
        locks = folder.parent / LOCKS
        if locks.is_dir():  # otherwise no process has ever written or deleted there
            with contextlib.suppress(OSError):  # a read-only storage: nobody deletes there
                lock = FolderLock.share(locks / folder.name)
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def remove_checkpoint(self, storage_id: str) -> None:
        """Take a checkpoint out of view in one step, then remove its files."""
        trash = self._base / f".{storage_id}.del-{uuid.uuid4().hex}"
        (self._base / storage_id).rename(trash)
        sync_path(self._base)
        reach("mid_gc")
        _remove_tree(trash)

    # What killed processes left behind.

    def sweep(self) -> None:
        """Remove trash, and stages that no live process holds."""
        with contextlib.suppress(OSError), os.scandir(self._base) as entries:
            names = {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
            for name in sorted(name for name in names if _TRASH.fullmatch(name)):
                _remove_tree(self._base / name)
            with contextlib.suppress(OSError):
                names.update(path.name for path in (self._base / LOCKS).iterdir())
            for name in sorted(name for name in names if _STAGE.fullmatch(name)):
                self._sweep_stage(name)

    def _sweep_stage(self, stage: str) -> None:
        try:
            lock = FolderLock.try_exclusive(self._base / LOCKS / stage)
        except OSError as error:
            logger.debug("Cannot tell whether %s is in use, so it is left alone: %s", stage, error)
            return
        if lock is not None:
            _remove_tree(self._base / stage)
            lock.release()


def share_like(base: Path, folder: Path) -> None:
    """Let whoever may write to a storage write to a folder of ours in it, by the same rules.

    With the sticky bit of the storage, nobody can remove what others have put there.
    """
    mode = stat.S_IMODE(base.stat().st_mode)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        chmod(folder, mode, folder)


def new_stage(storage_id: str) -> str:
    """Return the name of a new stage for a checkpoint."""
    return f".{storage_id}.tmp-{uuid.uuid4().hex}"


def _remove_tree(folder: Path) -> None:
    """Remove a hidden folder; what cannot be removed now is left for the next sweep."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.warning("Could not remove %s, will try again at the next start: %s", folder, error)
