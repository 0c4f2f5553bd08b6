"""Writing without the system's cache: the disk takes the bytes from the program's own memory.

Of file systems on block devices only. Elsewhere (network, memory, overlays) the cache is what makes
writes fast, or the call is not there.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def open_past_cache(path: Path) -> int:
    """Open an existing file for `write_past_cache`; -1 where there is no such thing."""
    flag: int = getattr(os, "O_DIRECT", 0)
    with contextlib.suppress(OSError):
        if flag and os.major(path.stat().st_dev):  # 0: not on a device of its own
            return os.open(path, os.O_WRONLY | os.O_CLOEXEC | flag)
    return -1


def write_past_cache(descriptor: int, content: memoryview, offset: int) -> int:
    """Write memory that begins at a page, and return how much of it was written.

    Less than all, even 0, if the file system or the disk refused the rest: write that as usual.
    """
    done = 0
    with contextlib.suppress(OSError):
        while done < len(content):
            written = os.pwrite(descriptor, content[done:], offset + done)
            if not written:
                break
            done += written
    return done
