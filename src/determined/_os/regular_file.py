"""Files in folders that others can write to: what is found there may be a pipe or a device."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO


class NotAFileError(OSError):
    """Something other than a file is where one is expected."""


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading; NotAFileError or IsADirectoryError if it is something else.

    Never blocks: opening a pipe as usual waits until something writes to it, maybe forever.
    """
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115  # for the caller
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NotAFileError(errno.EINVAL, "Not a regular file", os.fspath(path))
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
