"""One run, from its start to the last of its processes.

    start the entrypoint -> wait: pass signals on, follow the log -> it ends
    -> end whatever it left behind -> read the rest of the log -> exit.json

SIGTERM and similar signals are passed on; after SIGTERM the entrypoint has its grace period, then
everything is killed. SIGQUIT kills everything at once. SIGHUP is ignored: a closed terminal is no
reason to stop.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from determined._os import processes
from determined.platform.runs.folder import (
    EXITED,
    NOT_STARTED,
    RUN_VARIABLE,
    SIGNALLED,
    RunExit,
    RunFolder,
)
from determined.platform.runs.keeper import _entrypoint
from determined.platform.runs.keeper._held_folder import HeldFolder
from determined.platform.runs.keeper._hook import with_startup_hook
from determined.platform.runs.keeper._log import FollowedLog

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_POLL_SECONDS = 0.25
_REST_SECONDS = 0.02
_EXIT_ATTEMPTS = 10
_LOOK_SECONDS = 3.0  # how often to look whether the folder is still there
_LOOKS = 2  # a trial that has deleted it may be about to end
_GRACE_WITHOUT_FOLDER_SECONDS = 5.0
_KERNEL_COUNTERS = Path("/proc/vmstat")
_KILLED = 128 + signal.SIGKILL
_SHORT_OF_MEMORY = "The kernel has killed a process for lack of memory since the run began."


class Keeper:
    """Runs what a run folder describes; the caller holds the folder's lock until we are done."""

    def __init__(
        self, folder: RunFolder, execute: Callable[..., Any] = os.execvpe, note: str = ""
    ) -> None:
        self._folder = folder
        self._held = HeldFolder(folder)
        self._looked_at = time.monotonic()
        self._times_missed = 0
        self._execute = execute
        self._note = note
        self._spec = folder.spec
        self._log = FollowedLog(folder)
        self._pid: int | None = None
        self._started_at: float | None = None
        self._kill_at: float | None = None
        self._stopped_by: str | None = None
        self._received: list[int] = []
        self._memory_kills = _count_memory_kills()
        self._required_process = _watch(self._spec.ends_with)
        self._lease_ends = time.monotonic() + self._spec.lease_seconds
        self._wake_up, self._wake = os.pipe()
        for descriptor in (self._wake_up, self._wake):
            os.set_blocking(descriptor, False)

    def run(self) -> RunExit:
        """Run to the end and return how it ended."""
        _entrypoint.adopt_orphans()
        self._catch_signals()
        me = processes.identify(os.getpid())
        assert me is not None
        self._folder.save_processes(me, None)
        self._folder.set_room_aside()
        self._log.write(self._spec.prologue)
        if self._note:
            self._log.note(self._note)
        try:
            self._pid = self._start()
        except OSError as error:
            return self._could_not_start(error)
        self._started_at = time.time()
        self._folder.save_processes(me, processes.identify(self._pid))
        status = self._wait()
        ended_at = time.time()
        leftover = self._end_the_rest()
        self._log.finish()
        return self._save(self._describe(status, ended_at)._replace(leftover_processes=leftover))

    def _start(self) -> int:
        workdir = self._folder.workdir
        environment = {**self._folder.environment, RUN_VARIABLE: str(self._folder.path)}
        argv, environment = with_startup_hook(self._spec.argv, environment, workdir)
        return _entrypoint.start(argv, environment, workdir, self._log.descriptor, self._execute)

    def _wait(self) -> int:
        """Return the wait status of the entrypoint, once it has ended."""
        while True:
            statuses = processes.reap()
            if self._pid in statuses:
                status = statuses[self._pid]
                self._pid = None  # from now on another process may get this pid
                return status
            self._pass_on()
            self._stop_with_required_process()
            self._look_around()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._kill_everything()
            more = self._log.follow()
            self._rest(0.0 if more else _REST_SECONDS)  # much output must not keep us busy
            self._sleep(0.0 if more else None)

    def _rest(self, seconds: float) -> None:
        select.select([self._wake_up], [], [], seconds)

    def _sleep(self, seconds: float | None) -> None:
        growth = self._log.growth
        if seconds is None:
            is_blind = growth is None or isinstance(self._required_process, processes.Identity)
            seconds = _POLL_SECONDS if is_blind else _LOOK_SECONDS
        if self._kill_at is not None:
            seconds = min(seconds, max(_REST_SECONDS, self._kill_at - time.monotonic()))
        required = self._required_process if isinstance(self._required_process, int) else None
        sources = [source for source in (self._wake_up, growth, required) if source is not None]
        select.select(sources, [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_up, 4096)

    def _pass_on(self) -> None:
        while self._received:
            number = self._received.pop(0)
            if number == signal.SIGQUIT:
                self._stopped_by = "SIGKILL"
                self._kill_at = time.monotonic()
            elif number in _PASSED_ON:
                self._pass_on_one(number)

    def _stop_with_required_process(self) -> None:
        """Stop when the process is gone that is needed to collect this run."""
        if isinstance(self._required_process, int):
            is_over = bool(select.select([self._required_process], [], [], 0)[0])
        else:
            is_over = (
                self._required_process is not None
                and processes.look_up(self._required_process) is None
            )
        if is_over:
            self._required_process = None
            self._log.note("this node has left the cluster: stopping")
            self._pass_on_one(signal.SIGTERM)

    def _look_around(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self._stop_without_folder(now)
            self._stop_without_lease(now)

    def _stop_without_lease(self, now: float) -> None:
        """Stop when nobody vouches for this node any more: the run may go on elsewhere."""
        if self._spec.lease is None or self._stopped_by is not None:
            return
        with contextlib.suppress(OSError, ValueError):
            renewed = float(Path(self._spec.lease).read_text())
            self._lease_ends = max(self._lease_ends, renewed + self._spec.lease_seconds)
        if now >= self._lease_ends:
            seconds = self._spec.lease_seconds
            self._log.note(f"this node was cut off from its cluster for {seconds:.0f} s: stopping")
            self._pass_on_one(signal.SIGTERM)

    def _stop_without_folder(self, now: float) -> None:
        """Stop when the folder was deleted: nothing could collect the run."""
        self._times_missed = self._times_missed + 1 if self._held.is_deleted else 0
        if self._times_missed == _LOOKS:
            self._pass_on_one(signal.SIGTERM)
            self._kill_at = min(self._kill_at or now, now + _GRACE_WITHOUT_FOLDER_SECONDS)

    def _pass_on_one(self, number: int) -> None:
        main = processes.find(self._pid) if self._pid is not None else None
        if main is not None:
            processes.send(main, number)
        if number in _STOPPING:
            for process in processes.descendants(os.getpid()):
                if process.is_stopped:  # a rank, say, which could not end, nor save before that
                    processes.send(process, signal.SIGCONT)
            self._stopped_by = self._stopped_by or signal.Signals(number).name
            if self._kill_at is None:
                self._kill_at = time.monotonic() + self._spec.stop_grace_seconds

    def _kill_everything(self) -> None:
        self._stopped_by = "SIGKILL"
        for process in processes.descendants(os.getpid()):
            processes.send(process, signal.SIGKILL)

    def _end_the_rest(self) -> int:
        # They may be saving a checkpoint, so they get as long as the entrypoint would have.
        grace_over = max(time.monotonic() + self._spec.leftover_grace_seconds, self._kill_at or 0.0)

        def deadline() -> float:
            self._pass_on()
            self._log.follow()
            return 0.0 if self._stopped_by == "SIGKILL" else grace_over

        def find_them() -> list[processes.Process]:
            processes.reap()
            all_of_them = processes.table()
            mine = processes.descendants(os.getpid(), all_of_them)
            found = {process.pid: process for process in mine}
            folder = str(self._folder.path)
            for process in processes.with_variable(RUN_VARIABLE, folder, all_of_them):
                found.setdefault(process.pid, process)
            return list(found.values())

        count = processes.end_all(find_them, deadline, say=self._log.note)
        # Whoever is orphaned becomes our child at once: while there is a child, somebody is left,
        # even if it changes its pid faster than all processes can be listed.
        while processes.has_children():
            count += processes.end_all(find_them, deadline, say=self._log.note)
            if time.monotonic() >= deadline():
                processes.kill_children()
            else:
                self._rest(_REST_SECONDS)
        return count

    def _describe(self, status: int, ended_at: float) -> RunExit:
        code = os.waitstatus_to_exitcode(status)
        end = RunExit(
            exit_code=code if code >= 0 else 128 - code,
            reason=EXITED if code >= 0 else SIGNALLED,
            signal=None if code >= 0 else _name(-code),
            stopped_by=self._stopped_by,
            started_at=self._started_at,
            ended_at=ended_at,
            matches=self._log.policies.matches,
        )
        if code == 0:
            return end
        from determined.platform.runs.keeper import log_excerpt

        text = log_excerpt.read_end(self._folder.log)
        lines, traceback = log_excerpt.last_lines(text), log_excerpt.find_traceback(text)
        if self._stopped_by is None and _count_memory_kills() > self._memory_kills:
            if end.exit_code == _KILLED:
                lines, traceback = (*lines, f"SIGKILL. {_SHORT_OF_MEMORY}"), None
            else:  # a child of it may have been killed, such as a rank or a loader worker
                self._log.note(_SHORT_OF_MEMORY)
                lines = (*lines, _SHORT_OF_MEMORY)
        return end._replace(traceback=traceback, last_lines=lines)

    def _could_not_start(self, error: OSError) -> RunExit:
        message = f"The entrypoint could not be started: {error.filename}: {error.strerror}."
        self._log.note(message)
        self._log.finish()
        now = time.time()
        code = 127 if isinstance(error, FileNotFoundError) else 126
        return self._save(RunExit(code, NOT_STARTED, message, started_at=now, ended_at=now))

    def _save(self, end: RunExit) -> RunExit:
        for _ in range(_EXIT_ATTEMPTS - 1):
            try:
                return self._held.now.save_exit(end)
            except FileNotFoundError:  # the home was deleted: nobody wants to know
                return end
            except OSError:  # space may be freed, and this record matters
                time.sleep(1.0)
        return self._held.now.save_exit(end)

    def _catch_signals(self) -> None:
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in (*_PASSED_ON, signal.SIGQUIT, signal.SIGCHLD):
            signal.signal(number, self._receive)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._received.append(number)


def _watch(identity: processes.Identity | None) -> int | processes.Identity | None:
    """Return a descriptor that is readable once a process has ended, or else its identity."""
    if identity is None or not hasattr(os, "pidfd_open"):
        return identity
    try:
        descriptor = os.pidfd_open(identity.pid)
    except OSError:
        return identity
    if processes.look_up(identity) is None:  # another process may have its pid by now
        os.close(descriptor)
        return identity
    return descriptor


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have none
        return f"signal {number}"


def _count_memory_kills() -> int:
    """How many processes the kernel has killed for lack of memory since boot; 0 if unknown.

    Only the kernel knows who sent a SIGKILL.
    """
    try:
        text = _KERNEL_COUNTERS.read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill":
            return int(number)
    return 0
