"""What a fork server does: load, then fork. It never has a second thread, and never computes.

A fork copies one thread only: locks that another one held would never be released, and the workers
of a parallel operation would be missing. So a fork server with a second thread refuses to serve.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from determined.platform.runs.folder import RunFolder
from determined.platform.runs.keeper.__main__ import main as keep
from determined.platform.runs.warm import ending, fresh_process, messages
from determined.platform.runs.warm.program import WITH_TORCH, Program, from_message

# What a training process imports sooner or later: optimizers import the compiler.
_WITH_TORCH = ("torch", "torch._dynamo", "determined.pytorch")
_WITHOUT_TORCH = (
    "determined.core",
    "determined.core.backends.journal",
    "determined.tensorboard._events",
)
# Loaded for what they import: they themselves are run as programs.
_PROGRAMS = (
    "determined.launch.torchrun",
    "determined.launch.torch_distributed",
    "determined.exec.harness",
)


def main(argv: list[str]) -> None:
    """Serve on an inherited socket until the other side is gone, or sends nothing for long."""
    connection = socket.socket(fileno=int(argv[0]))
    os.set_inheritable(connection.fileno(), False)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps children
    idle_seconds = float(argv[1])
    unfit = load(with_torch=argv[2] == WITH_TORCH)
    files = Files()
    with contextlib.suppress(EOFError, OSError):  # a time-out is an OSError
        messages.send(connection, {"unfit": unfit})
        connection.settimeout(idle_seconds)
        while unfit is None:
            request, descriptors = messages.receive(connection)
            _serve(connection, request, descriptors, files)


def load(*, with_torch: bool) -> str | None:
    """Import everything; return why this process cannot serve, None if it can."""
    programs = _PROGRAMS if with_torch else ()
    for name in (*(_WITH_TORCH if with_torch else _WITHOUT_TORCH), *programs):
        try:
            importlib.import_module(name)
        except ImportError as error:
            return f"{name} cannot be imported: {error}"
    for name in programs:
        package, _, attribute = name.rpartition(".")
        del sys.modules[name]
        delattr(sys.modules[package], attribute)
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208
    if threads > 1:
        return f"{threads} threads run once the libraries are imported"
    if "openblas" in Path("/proc/self/maps").read_text() and not fresh_process.find_openblas():
        return "the threads of this OpenBLAS cannot be set"
    if any(_is_gpu(entry) for entry in Path("/proc/self/fd").iterdir()):
        return "a GPU is in use once torch is imported"
    ending.keep_what_is_loaded()
    gc.collect()
    gc.freeze()  # pages that the collector never touches are never copied
    return None


def _is_gpu(descriptor: Path) -> bool:
    """Whether this is an open GPU: its driver does not survive a fork."""
    with contextlib.suppress(OSError):
        return str(descriptor.readlink()).startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri"))
    return False


class Files:
    """The files that this process was loaded from, as they were when it was."""

    def __init__(self) -> None:
        paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        paths |= set(sys.path)  # a new package, or a new .pth file
        self._states = {path: _state(path) for path in paths if path and path.startswith("/")}

    def find_changed(self) -> str | None:
        """Return the first that has changed."""
        states = self._states.items()
        return next((path for path, state in states if _state(path) != state), None)


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _serve(
    connection: socket.socket, request: dict[str, Any], descriptors: list[int], files: Files
) -> None:
    program = from_message(request["program"])
    refusal = _refuse(program, Path(request["cwd"]), files)
    if refusal is not None:
        messages.send(connection, refusal)
    else:
        pid = os.fork()
        if pid == 0:
            connection.detach()  # closed with all others; its number may be reused
            _keep(program, request["folder"], descriptors[0])
        messages.send(connection, {"pid": pid})
    for descriptor in descriptors:
        os.close(descriptor)


def _refuse(program: Program, cwd: Path, files: Files) -> dict[str, Any] | None:
    changed = files.find_changed()
    if changed is not None:
        return {"stale": changed}
    cold = fresh_process.clash(program, cwd)
    return None if cold is None else {"cold": cold.reason}


def _keep(program: Program, folder: str, alive: int) -> NoReturn:
    """Be the keeper of a run, like one that the launcher starts; its child becomes the program."""
    try:
        os.setsid()
        fresh_process.reset_signals()
        run = RunFolder(folder)
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(run.keeper_errors, append, 0o600), 1)
        os.dup2(1, 2)
        command = (sys.executable, "-m", "determined.platform.runs.keeper", folder, str(alive))
        fresh_process.show_command(command, os.environ)
        keep([folder, str(alive)], functools.partial(fresh_process.execute, program))
        os._exit(0)
    except Exception:
        traceback.print_exc()
        os._exit(1)
