"""The folder of a run while its keeper lives: it may be moved with its home, or deleted."""

from __future__ import annotations

import os
from pathlib import Path

from determined.platform.runs.folder import RunFolder


class HeldFolder:
    """A run folder that is found again wherever it is moved to."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._descriptor = os.open(folder.path, flags)

    @property
    def is_deleted(self) -> bool:
        """Whether it is gone for good; a disk that does not answer proves nothing."""
        if not _is_absent(self._folder.path):
            return False
        try:
            return os.fstat(self._descriptor).st_nlink == 0
        except OSError:
            return False

    @property
    def now(self) -> RunFolder:
        """The folder where it is now."""
        if _is_absent(self._folder.path) and not self.is_deleted:
            link = Path("/proc/self/fd", str(self._descriptor))
            if link.is_symlink():
                return RunFolder(link.readlink())
        return self._folder


def _is_absent(path: Path) -> bool:
    try:
        os.stat(path)  # noqa: PTH116  # only this error means that there is nothing
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
