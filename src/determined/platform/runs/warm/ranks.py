"""Warm starts below our launcher: torchrun, and one worker per slot.

The launcher's process is a fork. Before it becomes the launcher it forks once more: a fork server
for this launch, at the bottom of the stack and without a thread, that lives as long as the launcher
and forks what the processes of this launch ask for.

    keeper --- launcher --- fork server --- torchrun --- wrap_rank (cold: it imports little)
                                   \\--- worker <--asks for it, passes its signals on--/

The process that asked gets the exit status over its connection. When it is gone, the fork server
sends the child the signal that a real child would have got.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import select
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from determined.platform.runs.warm import fresh_process, messages
from determined.platform.runs.warm.interpreter import locate
from determined.platform.runs.warm.program import (
    Program,
    find_program,
    from_message,
    import_environment,
    obstacle,
    to_message,
)

VARIABLE = "DET_WARM_RANKS"
LAUNCHER = "determined.launch.torch_distributed"
_PR_SET_PDEATHSIG = 1
_ANSWER_SECONDS = 20.0


class _Child(NamedTuple):
    """A child, the connection that asked for it, and the signal for when that is gone."""

    pid: int
    client: socket.socket | None
    orphan_signal: int


# The fork server


def start_fork_server(environment: Mapping[str, str]) -> dict[str, str]:
    """Start the fork server of a launch; return the variables by which it is found.

    Never returns in the fork server; in the children that it forks it raises `ProgramStart`.
    """
    listener = socket.socket(socket.AF_UNIX)
    name = f"determined-{secrets.token_hex(16)}"
    listener.bind(f"\0{name}")
    listener.listen(64)
    launcher = os.getpid()
    pid = os.fork()
    if pid:
        listener.close()
        return {VARIABLE: f"{pid} {name}"}
    os.closerange(3, listener.fileno())  # a newly started process would not have them
    os.closerange(listener.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    command = (sys.executable, "-m", "determined.platform.runs.warm", name)
    fresh_process.show_command(command, environment)
    return _ForkServer(listener, environment).serve(is_orphan=os.getppid() != launcher)


class _ForkServer:
    def __init__(self, listener: socket.socket, environment: Mapping[str, str]) -> None:
        self._listener = listener
        self._environment = environment
        # By the descriptor that becomes readable at their end.
        self._children: dict[int, _Child] = {}
        self._is_orphan = False
        self._wake_up, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._lose_launcher)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def serve(self, *, is_orphan: bool) -> NoReturn:
        """Fork on request, until the launcher is gone and all children have ended."""
        self._is_orphan = is_orphan
        while not self._is_orphan or self._children:
            sources: list[Any] = [self._listener, self._wake_up, *self._children]
            sources += [child.client for child in self._children.values() if child.client]
            for source in select.select(sources, [], [])[0]:
                if source is self._listener:
                    self._accept()
                elif source == self._wake_up:
                    os.read(self._wake_up, 4096)
                elif isinstance(source, socket.socket):
                    self._lose_client(source)
                elif source in self._children:
                    self._reap(source)
        os._exit(0)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(_ANSWER_SECONDS)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", credentials)[1] != os.getuid():
            connection.close()
            return
        try:
            request, descriptors = messages.receive(connection)
        except (OSError, EOFError, ValueError):
            connection.close()
            return
        program = from_message(request["program"])
        cold = obstacle(program, request["environment"]) or fresh_process.clash(
            program, Path(request["cwd"])
        )
        own, theirs = import_environment(self._environment), request["environment"]
        if cold is not None or import_environment(theirs) != own:
            messages.send(connection, {"pid": None})
            connection.close()
        else:
            self._fork(program, request, descriptors, connection)
        for descriptor in descriptors:
            os.close(descriptor)

    def _fork(
        self,
        program: Program,
        request: dict[str, Any],
        descriptors: list[int],
        connection: socket.socket,
    ) -> None:
        pid = os.fork()
        if pid == 0:
            clients = [child.client for child in self._children.values() if child.client]
            for each in (self._listener, connection, *clients):
                each.detach()  # closed with all others; their numbers may be reused
            _become_child(program, request, descriptors)
        self._children[os.pidfd_open(pid)] = _Child(pid, connection, request["orphan_signal"])
        messages.send(connection, {"pid": pid})

    def _reap(self, descriptor: int) -> None:
        child = self._children.pop(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(child.pid, 0)
        if child.client is not None:
            with contextlib.suppress(OSError):
                messages.send(child.client, {"status": os.waitstatus_to_exitcode(status)})
            child.client.close()

    def _lose_client(self, client: socket.socket) -> None:
        for descriptor, child in self._children.items():
            if child.client is client:
                os.kill(child.pid, child.orphan_signal)
                self._children[descriptor] = child._replace(client=None)
                client.close()
                return

    def _lose_launcher(self, number: int, frame: FrameType | None) -> None:
        self._is_orphan = True


def _become_child(program: Program, request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, request["orphan_signal"])
        os.setsid()
        fresh_process.reset_signals()
        os.chdir(request["cwd"])
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        fresh_process.execute(program, program.interpreter, program.command, request["environment"])
    except Exception:
        os._exit(127)


# Clients


class Forked:
    """A process that a fork server forked, with the part of `subprocess.Popen` that is needed."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._connection = connection

    def send_signal(self, number: int) -> None:
        signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Return the exit status, -SIGKILL if the server, and so the process, was lost."""
        try:
            status: int = messages.receive(self._connection)[0]["status"]
        except (OSError, EOFError):
            status = -signal.SIGKILL
        return status


def fork(
    command: Sequence[str],
    environment: Mapping[str, str],
    descriptors: Sequence[int],
    orphan_signal: int,
) -> Forked | None:
    """Have a command forked in its own session; None where that is not possible."""
    address = os.environ.get(VARIABLE)
    found = find_program(command)
    program = locate(found, environment) if isinstance(found, Program) else None
    if not address or program is None:
        return None
    request = {
        "program": to_message(program),
        "environment": dict(environment),
        "cwd": str(Path.cwd()),
        "orphan_signal": int(orphan_signal),
    }
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_ANSWER_SECONDS)
    try:
        connection.connect(f"\0{address.partition(' ')[2]}")
        messages.send(connection, request, descriptors)
        pid = messages.receive(connection)[0]["pid"]
        connection.settimeout(None)
        return None if pid is None else Forked(pid, connection)
    except (OSError, EOFError):
        return None


def end_fork_server() -> None:
    """End the fork server of this launch, our child, when there will be no more requests."""
    address = os.environ.get(VARIABLE, "").partition(" ")[0]
    if address:
        pid = int(address)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
