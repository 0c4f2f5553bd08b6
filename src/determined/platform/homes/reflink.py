"""Copy a file so that the copy can be changed: as a reflink where the file system can do that."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from pathlib import Path

from determined._os.weak_file_systems import chmod

_FICLONE = 0x40049409  # ioctl of Linux: share the blocks until one of the two is written to
_BLOCK_BYTES = 1 << 20


def copy_content(source: Path, target: Path, mode: int) -> tuple[int, str]:
    """Make the file `target` with the content of `source`; return its size and SHA-256.

    Links are not followed, and `target` must not exist.
    """
    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        create = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        writer = os.open(target, create, mode)
        try:
            chmod(writer, mode, target)
            if _clone(reader, writer):
                return _copy(writer, None)  # hash what we have: the source may change meanwhile
            return _copy(reader, writer)
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def _clone(reader: int, writer: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        fcntl.ioctl(writer, _FICLONE, reader)
    except OSError:  # another file system, or one that cannot
        return False
    return True


def _copy(reader: int, writer: int | None) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    while block := os.read(reader, _BLOCK_BYTES):
        digest.update(block)
        size += len(block)
        while writer is not None and block:
            block = block[os.write(writer, block) :]
    return size, digest.hexdigest()
