"""Warm starts in a terminal: `det run`.

One helper per terminal session, which listens under a name of that session. It belongs to the
session, so the programs that it forks can join the process group of the client: Ctrl-C, Ctrl-Z and
the terminal itself reach them as they reach any command of the shell. A guard between the helper
and the program reports how it ended, and ends it when the client is gone.

    det run --asks--> helper --forks--> guard --forks--> program
       ^--------------------exit status----'
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from determined.platform.runs.warm import messages
from determined.platform.runs.warm.helpers import COMMAND_ROOM, MAIN, helper_environment
from determined.platform.runs.warm.program import (
    Cold,
    Program,
    find_program,
    from_message,
    import_environment,
    obstacle,
    to_message,
)

_IDLE_VARIABLE = "DET_WARM_IDLE_SECONDS"
_IDLE_SECONDS = 600.0
_POLL_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FOR_THE_PROGRAM = (signal.SIGINT, signal.SIGQUIT)  # the terminal sends them to the whole group


def run(words: Sequence[str]) -> int:
    """Run `python WORDS...` here, warm if possible, else in place of this process.

    Returns the exit status of a warm one, -n after signal n.
    """
    command = [sys.executable, *words]
    program = find_program(command)
    cold = program if isinstance(program, Cold) else obstacle(program, os.environ)
    if cold is None and sys.platform == "linux":
        assert isinstance(program, Program)
        status = _run_warm(program)
        if isinstance(status, int):
            return status
        cold = status
    if cold is not None and cold.lasts and sys.stderr.isatty():
        sys.stderr.write(f"Cold start: {cold.reason}.\n")
        sys.stderr.flush()
    return os.execv(sys.executable, command)


def _run_warm(program: Program) -> int | Cold:
    """Run a program through the helper of this session; start one if there is none."""
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(_address())
        if _peer(connection) != os.getuid():
            return Cold("another user has taken its name", lasts=False)
        umask = os.umask(0)
        os.umask(umask)
        request = {
            "program": to_message(program),
            "circumstances": _circumstances(),
            "environment": dict(os.environ),
            "cwd": str(Path.cwd()),
            "group": os.getpgrp(),
            "umask": umask,
        }
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _FOR_THE_PROGRAM}
        try:
            messages.send(connection, request, (0, 1, 2))
            answer = messages.receive(connection)[0]
            if "pid" in answer:
                return _wait(connection, answer["pid"])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    except (OSError, EOFError):
        answer = {}
    if "cold" in answer:
        return Cold(answer["cold"])
    _start_helper()
    return Cold("there is no helper yet", lasts=False)


def _wait(connection: socket.socket, pid: int) -> int:
    connection.settimeout(None)
    process = os.pidfd_open(pid)

    def pass_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        status: int = messages.receive(connection)[0]["status"]
    except (OSError, EOFError):  # the guard was killed, and the program with it
        status = -signal.SIGKILL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status


def _start_helper() -> None:
    """Start a helper for this session that outlives us."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(_address())
    except OSError:
        return  # one is there, or just exiting
    listener.listen(8)
    idle_seconds = os.environ.get(_IDLE_VARIABLE, str(_IDLE_SECONDS))
    descriptor = listener.fileno()
    subprocess.Popen(
        [
            *(sys.executable, str(MAIN), "terminal", str(descriptor), idle_seconds),
            *(_circumstances(), COMMAND_ROOM),
        ],
        env=helper_environment(import_environment(os.environ)),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[descriptor],
        preexec_fn=os.setpgrp,  # in our session, but not part of this job
    )


def _address() -> str:
    return f"\0determined-{os.getuid()}-{os.getsid(0)}"


def _peer(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    user: int = struct.unpack("3i", credentials)[1]
    return user


def _circumstances() -> str:
    """Summarize what a forked program inherits from its helper and could not change."""
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    content = [
        sys.executable,
        sorted(import_environment(os.environ).items()),
        [resource.getrlimit(getattr(resource, name)) for name in names],
        os.nice(0),
        sorted(os.sched_getaffinity(0)),
        sorted(os.getgroups()),
        [os.getuid(), os.geteuid(), os.getgid(), os.getegid()],
        Path("/proc/self/cgroup").read_text(),
        [os.readlink(f"/proc/self/ns/{name}") for name in sorted(os.listdir("/proc/self/ns"))],  # noqa: PTH115, PTH208
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


# The helper's side


def serve(argv: list[str]) -> None:
    """Serve a terminal session until it is over, or there was no request for long."""
    from determined.platform.runs.warm.helper import Files, load

    listener = socket.socket(fileno=int(argv[0]))
    os.set_inheritable(listener.fileno(), False)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if load(with_torch=True) is not None:
        return
    files, idle, session = Files(), 0.0, os.getsid(0)
    while idle < float(argv[1]):
        if not select.select([listener], [], [], _POLL_SECONDS)[0]:
            idle += _POLL_SECONDS
            if not Path(f"/proc/{session}").exists():
                return
            continue
        idle = 0.0
        connection, _ = listener.accept()
        connection.settimeout(_ANSWER_SECONDS)
        with contextlib.suppress(OSError, EOFError, ValueError):
            if _peer(connection) == os.getuid():
                request, descriptors = messages.receive(connection)
                is_other = request["circumstances"] != argv[2]
                if is_other or files.find_changed() is not None:
                    listener.close()  # before the answer: after it another helper may take the name
                    messages.send(connection, {"stale": True})
                    return
                if os.fork() == 0:
                    listener.detach()
                    _guard(connection, request, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
        connection.close()


def _guard(connection: socket.socket, request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Fork the program, wait for its end and report it; end it when the client is gone."""
    from determined.platform.runs.warm import fresh_process

    try:
        program = from_message(request["program"])
        cold = fresh_process.clash(program, Path(request["cwd"]))
        if cold is not None:
            messages.send(connection, {"cold": cold.reason})
            os._exit(0)
        os.setpgid(0, request["group"])
        fresh_process.reset_signals()
        for number in (*_FOR_THE_PROGRAM, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        pid = os.fork()
        if pid == 0:
            connection.detach()
            _be_program(program, request, descriptors)
        messages.send(connection, {"pid": pid})
        for descriptor in (0, 1, 2, *descriptors):
            os.close(descriptor)  # a reader of the program's pipe must see its end
        process = os.pidfd_open(pid)
        sources: list[Any] = [process, connection]
        if process not in select.select(sources, [], [])[0]:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        messages.send(connection, {"status": os.waitstatus_to_exitcode(status)})
        os._exit(0)
    except Exception:
        os._exit(1)


def _be_program(program: Program, request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    from determined.platform.runs.warm import fresh_process

    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        fresh_process.reset_signals()
        os.umask(request["umask"])
        os.chdir(request["cwd"])
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        fresh_process.execute(program, program.interpreter, program.words, request["environment"])
    except Exception:
        os._exit(127)
