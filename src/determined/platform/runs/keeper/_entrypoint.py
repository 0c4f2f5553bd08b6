"""Start the entrypoint of a run as a child of this process."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_UNCATCHABLE = (signal.SIGKILL, signal.SIGSTOP)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that none is lost (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(
    argv: tuple[str, ...],
    environment: dict[str, str],
    cwd: Path,
    output: int,
    execute: Callable[..., Any] = os.execvpe,
) -> int:
    """Run a command in its own session and return its pid; OSError if that fails.

    Its output goes straight to `output`. `execute` is called in the new process and does not
    return. When we die it gets SIGTERM, as if asked to stop. Must be called from the main thread:
    that signal is sent when the thread that forked ends.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    environment = {"PATH": os.defpath, **environment}
    report, complain = os.pipe()  # closed by exec, so no data means success
    keeper = os.getpid()
    # Until exec the child has our handlers, which must not receive its signals.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = os.fork()
    if pid == 0:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
            if os.getppid() != keeper:  # the keeper died before that took effect
                os._exit(127)
        _become(argv, environment, cwd, output, complain, execute)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(complain)
    with os.fdopen(report, "rb") as reader:
        complaint = reader.read()
    if complaint:
        os.waitpid(pid, 0)
        number, _, name = complaint.partition(b" ")
        raise OSError(int(number), os.strerror(int(number)), os.fsdecode(name))
    return pid


def _become(
    argv: tuple[str, ...],
    environment: dict[str, str],
    cwd: Path,
    output: int,
    complain: int,
    execute: Callable[..., Any],
) -> None:
    """Turn this new child into the command; never returns."""
    name = str(cwd)
    try:
        os.setsid()
        _reset_signals()
        os.chdir(cwd)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        name = argv[0]
        execute(name, argv, environment)
    except Exception as error:  # a null byte in a word or a variable is a ValueError
        number = getattr(error, "errno", errno.EINVAL)
        os.write(complain, f"{number} {name}".encode(errors="surrogateescape"))
        os._exit(127)


def _reset_signals() -> None:
    """Restore default handling: Python ignores some signals, and programs inherit that."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number not in _UNCATCHABLE and signal.getsignal(number) is not None:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
