"""Which checkpoints of a folder belong to which run: empty files, so that none must be read."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from determined._contracts.checkpoint_layout import is_storage_id
from determined._os.weak_file_systems import chmod

FOLDER = ".det-runs"
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RunTags:
    """The files `.det-runs/<tag>/<storage_id>` below a base folder. Links are not followed."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def add(self, name: str, tag: str) -> None:
        """Tag a checkpoint. The base folder must exist: one that is gone is not created again."""
        with _opened(self._base) as base, _made(FOLDER, base) as folder:
            _share_like(base, folder)
            with _made(tag, folder) as own:
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                os.close(os.open(name, flags, 0o666, dir_fd=own))

    def remove(self, name: str, tag: str) -> None:
        """Remove a tag, if there is one."""
        with (
            contextlib.suppress(FileNotFoundError),
            _opened(self._base / FOLDER) as folder,
            _opened(tag, folder) as own,
        ):
            os.unlink(name, dir_fd=own)

    def read(self, tag: str | None = None) -> dict[str, str]:
        """The tag of each checkpoint that has one, or of those that have this one."""
        found = {}
        with contextlib.suppress(OSError), _opened(self._base / FOLDER) as folder:
            for own in _names(folder) if tag is None else [tag]:
                with contextlib.suppress(OSError), _opened(own, folder) as files:
                    found.update(dict.fromkeys(_names(files), own))
        return found


@contextlib.contextmanager
def _opened(path: Path | str, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, _OPEN_FOLDER, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _made(name: str, folder: int) -> Iterator[int]:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    with _opened(name, folder) as descriptor:
        yield descriptor


def _share_like(base: int, folder: int) -> None:
    """Let whoever may write to the storage tag checkpoints; as `share_like`, by descriptors."""
    mode = stat.S_IMODE(os.fstat(base).st_mode)
    status = os.fstat(folder)
    is_mine = status.st_uid == os.geteuid()
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and is_mine and stat.S_IMODE(status.st_mode) != mode:
        chmod(folder, mode, FOLDER)


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if is_storage_id(entry.name)]
