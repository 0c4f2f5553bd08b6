"""Where this process is, in one line: waiting for other ranks, or busy with something else."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import FrameType

WAITS = "waits for other ranks in"

_COLLECTIVES = ("group", "channel", "listeners", "rendezvous")
# Where the main thread of a rank is when it waits for others: the collectives of torch and ours.
_WAITING = (
    *("torch/distributed/", "torch/autograd/", "torch/nn/parallel/"),
    *(f"determined/core/ranks/{name}.py" for name in _COLLECTIVES),
)
_STANDARD_LIBRARY = str(Path(os.__file__).parent)
_LIBRARIES = ("/site-packages/", "/dist-packages/", f"{Path(__file__).parents[2]}/")


def whereabouts() -> str:
    """Say in one line where the main thread is, to distinguish a late rank from waiting ones."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    stack = []
    while frame is not None:
        stack.append((frame.f_code.co_filename, f"{frame.f_code.co_name} ({_line(frame)})"))
        frame = frame.f_back
    # Waiting for a lock happens in the standard library: find the frame that called it.
    while len(stack) > 1 and _is_standard(stack[0][0]):
        del stack[0]
    if not stack:
        return "has no main thread"
    file, place = stack[0]
    text = f"{WAITS if any(part in file for part in _WAITING) else 'is busy in'} {place}"
    users = [place for file, place in stack if not (_is_library(file) or _is_standard(file))]
    return f"{text}, called from {users[0]}" if users and users[0] != place else text


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_standard(file: str) -> bool:
    return file.startswith((_STANDARD_LIBRARY, "<frozen")) and "-packages/" not in file


def _is_library(file: str) -> bool:
    return any(part in file for part in _LIBRARIES)
