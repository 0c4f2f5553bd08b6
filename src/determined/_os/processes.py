"""Processes of this machine: their identity, their parents, and how to end them all.

A pid alone identifies nothing, because pids are reused. An identity is (boot, pid, start time), and
every signal goes to an identity.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_CHUNK_BYTES = 1 << 16
_SHORTEST_PAUSE_SECONDS = 0.005
_LONGEST_PAUSE_SECONDS = 0.2
_STUBBORN_AFTER_SECONDS = 10.0


class Identity(NamedTuple):
    """One process: no other ever has the same three values."""

    boot_id: str
    pid: int
    start_time: int


class Process(NamedTuple):
    """One row of the process table."""

    pid: int
    parent: int
    state: str
    start_time: int

    @property
    def is_gone(self) -> bool:
        """A zombie has ended: only its exit status is left."""
        return self.state in "ZX"

    @property
    def is_stopped(self) -> bool:
        return self.state in "Tt"


def find(pid: int) -> Process | None:
    """Return the process that has this pid now."""
    if sys.platform != "linux":
        return _find_by_psutil(pid)
    line = _read(pid, "stat")
    if not line:
        return None
    # The name may contain anything, even spaces and parentheses; what follows it may not.
    fields = line[line.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), fields[0].decode(), int(fields[19]))


def name_of(pid: int) -> str:
    """Return what the kernel calls the program of a process: at most 15 characters of its name."""
    return _read(pid, "comm").decode(errors="replace").strip()


def table() -> dict[int, Process]:
    """Return all processes that can be seen."""
    if sys.platform != "linux":
        import psutil

        pids = psutil.pids()
    else:
        pids = [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208
    return {process.pid: process for pid in pids if (process := find(pid)) is not None}


def identify(pid: int) -> Identity | None:
    """Return the identity of the process that has this pid now."""
    process = find(pid)
    return None if process is None else Identity(boot_id(), pid, process.start_time)


def look_up(identity: Identity) -> Process | None:
    """Return the living process of this identity, None once it has ended."""
    process = find(identity.pid)
    if process is None or process.is_gone or process.start_time != identity.start_time:
        return None
    return process if identity.boot_id == boot_id() else None


def boot_id() -> str:
    """Identifies this boot of the machine."""
    if sys.platform != "linux":
        import psutil

        return str(int(psutil.boot_time()))
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def send(process: Process, number: int) -> bool:
    """Send a signal to this very process; False when it is gone."""
    if not hasattr(os, "pidfd_open"):
        found = find(process.pid)
        if found is None or found.start_time != process.start_time:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
            return True
        return False
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        found = find(process.pid)  # read while the descriptor prevents reuse of the pid
        if found is None or found.start_time != process.start_time:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def descendants(pid: int, processes: Mapping[int, Process] | None = None) -> list[Process]:
    """Return the living children of a process, their children, and so on.

    For several queries, read the `table` once and pass it to each.
    """
    children: dict[int, list[Process]] = {}
    for process in (table() if processes is None else processes).values():
        children.setdefault(process.parent, []).append(process)
    found, queue = [], [pid]
    while queue:
        for child in children.get(queue.pop(), ()):
            found.append(child)
            queue.append(child.pid)
    return [process for process in found if not process.is_gone]


def has_variable(pid: int, name: str) -> bool:
    """Whether a process was started with an environment variable of this name."""
    process = find(pid)
    start = f"{name}=".encode()
    return process is not None and any(e.startswith(start) for e in _environment(process))


def with_variable(
    name: str, value: str, processes: Mapping[int, Process] | None = None
) -> list[Process]:
    """Return the living processes that were started with an environment variable, but not us."""
    wanted = f"{name}={value}".encode()
    return [
        process
        for process in (table() if processes is None else processes).values()
        if process.pid != os.getpid() and not process.is_gone and wanted in _environment(process)
    ]


def end_all(
    find_them: Callable[[], Iterable[Process]],
    deadline: Callable[[], float],
    say: Callable[[str], None] = lambda text: None,
) -> int:
    """Ask processes to end with SIGTERM, kill them after the deadline, return when none is left.

    Only those whose parent is not among them are asked: a trial that stops its own loader workers
    must not find them dead. Each is asked once, as a second SIGTERM may mean "at once".
    `deadline` is called repeatedly, on the monotonic clock, so that the wait can be cut short.
    Returns how many there were.
    """
    requested: set[tuple[int, int]] = set()
    seen: set[int] = set()
    pause, stubborn_at = _SHORTEST_PAUSE_SECONDS, None
    while True:
        processes = list(find_them())
        if not processes:
            return len(seen)
        seen.update(process.pid for process in processes)
        if time.monotonic() < deadline():
            _request_stop(processes, requested)
        else:
            for process in processes:
                send(process, signal.SIGKILL)
            stubborn_at = stubborn_at or time.monotonic() + _STUBBORN_AFTER_SECONDS
            if time.monotonic() > stubborn_at:
                names = ", ".join(f"{process.pid} ({process.state})" for process in processes)
                say(f"still waiting for processes that SIGKILL does not end: {names}")
                stubborn_at = time.monotonic() + 60 * _STUBBORN_AFTER_SECONDS
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)


def reap() -> dict[int, int]:
    """Collect the statuses of children that have ended, by pid."""
    statuses = {}
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[ended[0]] = ended[1]
    return statuses


def has_children() -> bool:
    """Whether this process has children, ended ones aside, which are collected."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def kill_children() -> None:
    """Kill the children of this process, as fast as can be.

    A pid of a child means nothing else until the child is collected, which we alone do.
    """
    for pid in _children():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children() -> list[int]:
    """The pids of our children; those of all threads, since any of them may have forked."""
    me = os.getpid()
    try:
        tasks = os.listdir(f"/proc/{me}/task")  # noqa: PTH208  # speed matters here
        texts = [_read(me, f"task/{task}/children") for task in tasks]
        if any(texts):
            return [int(pid) for text in texts for pid in text.split()]
    except OSError:
        pass
    return [process.pid for process in table().values() if process.parent == me]


def _request_stop(processes: list[Process], requested: set[tuple[int, int]]) -> None:
    pids = {process.pid for process in processes}
    for process in processes:
        key = (process.pid, process.start_time)
        if process.parent not in pids and key not in requested:
            requested.add(key)
            send(process, signal.SIGTERM)
            send(process, signal.SIGCONT)  # a suspended one could not react


def _environment(process: Process) -> list[bytes]:
    if sys.platform != "linux":
        import psutil

        with contextlib.suppress(psutil.Error):
            items = psutil.Process(process.pid).environ().items()
            return [f"{name}={value}".encode() for name, value in items]
        return []
    return _read(process.pid, "environ").split(b"\0")


def _read(pid: int, name: str) -> bytes:
    """Read a file of a process; nothing if it is gone, or another user's.

    Without `Path` and `open`, which cost more than the kernel: there may be thousands.
    """
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return b"".join(iter(lambda: os.read(descriptor, _CHUNK_BYTES), b""))
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _find_by_psutil(pid: int) -> Process | None:
    import psutil

    states = {psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_DEAD: "X", psutil.STATUS_STOPPED: "T"}
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            state = states.get(process.status(), "S")
            return Process(pid, process.ppid(), state, int(process.create_time() * 1e6))
    except psutil.Error:
        return None
