"""What network and FUSE file systems may not offer: go on without it, and say so once.

Only the refusal of the operation itself is passed over. A write that fails, EIO and a full disk
are errors as ever.
"""

from __future__ import annotations

import errno
import os

_NO_FSYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_NO_MODES = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)

_warned: set[str] = set()


def fsync(descriptor: int, path: str | os.PathLike[str], *, data_only: bool = False) -> None:
    """Wait until a file, or the names in a folder, are on disk, where the file system can tell."""
    call = getattr(os, "fdatasync", os.fsync) if data_only else os.fsync
    try:
        call(descriptor)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise
        _warn_once(
            "fsync",
            f"The file system of {os.fspath(path)} cannot say when files are on disk (fsync: "
            f"{error.strerror}). Saving goes on, but after a power cut or a crash of the machine, "
            "what was saved there last may be lost or incomplete.",
        )


def chmod(file: int | str | os.PathLike[str], mode: int, path: str | os.PathLike[str]) -> None:
    """Set the permission bits of a file, given by path or descriptor, where there are any."""
    try:
        os.chmod(file, mode)  # noqa: PTH101  # also takes descriptors
    except OSError as error:
        if error.errno not in _NO_MODES:
            raise
        _warn_once(
            "chmod",
            f"The file system of {os.fspath(path)} does not let us set permissions (chmod: "
            f"{error.strerror}). Saving goes on, but who may read what is saved there is decided "
            "by how it is mounted.",
        )


def _warn_once(kind: str, text: str) -> None:
    if kind in _warned:
        return
    _warned.add(kind)
    import logging  # keepers, which must start fast, hardly ever need it

    logging.getLogger("determined.storage").warning(text)
