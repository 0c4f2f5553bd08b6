"""Whether a supervisor is running for a home, how to start one, and how to wake it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from determined._version import __version__
from determined.errors import DeterminedError
from determined.platform.homes.home import Home

if TYPE_CHECKING:
    import asyncio  # clients must start fast, and need no loop

_POLL_SECONDS = 0.02
_CLAIM_SECONDS = 60.0

# What a supervisor's log says, for clients that wait for it.
CANNOT_USE_STORE = "the store cannot be used"
USES_STORE_AGAIN = "the store can be used again"


@dataclass(frozen=True)
class Facts:
    """What a supervisor publishes about itself."""

    pid: int
    version: str
    home: str
    slots: int = 0
    cluster: str = ""
    """The address of the cluster that runs go to; empty for this machine."""


class Presence:
    """The lock that a supervisor holds for as long as it lives, and the pipe that wakes it."""

    def __init__(self, home: Home, lock: int) -> None:
        self._home = home
        self._lock = lock
        self._pipe: int | None = None

    @classmethod
    def claim(cls, home: Home, timeout_seconds: float = _CLAIM_SECONDS) -> Presence | None:
        """Become the supervisor of a home; None if there is one.

        One that does not listen is exiting or just starting, and `find` holds the lock for a
        moment, too: wait for them.
        """
        deadline = time.monotonic() + timeout_seconds
        while (presence := cls._try(home)) is None:
            if wake(home) or time.monotonic() > deadline:
                return None
            time.sleep(_POLL_SECONDS)
        return presence

    @classmethod
    def _try(cls, home: Home) -> Presence | None:
        home.make()
        lock = os.open(home.supervisor_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        os.ftruncate(lock, 0)  # what is there was left by one that was killed
        return cls(home, lock)

    def listen(
        self,
        loop: asyncio.AbstractEventLoop,
        wake: Callable[[], None],
        num_slots: int,
        cluster: str = "",
    ) -> None:
        """Call `wake` whenever a client asks, and publish the facts."""
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self._home.wake, 0o600)
        # Open for writing as well: otherwise the pipe would end whenever a client closes it.
        self._pipe = os.open(self._home.wake, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        loop.add_reader(self._pipe, self._woken, wake)
        facts = Facts(os.getpid(), __version__, str(self._home.path), num_slots, cluster)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, json.dumps(asdict(facts)).encode(), 0)

    def _woken(self, wake: Callable[[], None]) -> None:
        assert self._pipe is not None
        with contextlib.suppress(BlockingIOError):
            os.read(self._pipe, 65536)
        wake()

    @property
    def is_in_place(self) -> bool:
        """Whether the home is where it was: not moved, nor deleted, nor another one."""
        try:
            return os.path.samestat(self._home.supervisor_lock.stat(), os.fstat(self._lock))
        except OSError:
            return False

    def stop_listening(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop listening: a client that wakes us from now on starts another, which waits for us."""
        if self._pipe is not None:
            loop.remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = None

    def release(self) -> None:
        """Release the lock for the next one."""
        os.ftruncate(self._lock, 0)
        os.close(self._lock)


def find(home: Home) -> Facts | None:
    """The running supervisor; None if there is none, or it is just starting."""
    try:
        lock = os.open(home.supervisor_lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with contextlib.suppress(ValueError, TypeError):
            return Facts(**json.loads(os.pread(lock, 4096, 0)))
        return None
    finally:
        os.close(lock)
    return None


def wake(home: Home) -> bool:
    """Wake the supervisor; False if nobody listens."""
    try:
        pipe = os.open(home.wake, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return False
        raise
    try:
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            return False
        with contextlib.suppress(BlockingIOError):  # the pipe is full
            os.write(pipe, b".")
        return True
    finally:
        os.close(pipe)


def start(home: Home) -> subprocess.Popen[bytes]:
    """Start a supervisor that outlives this process; it exits at once if there is one already."""
    from determined.platform.runs.environment import inherited

    home.make()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    log = os.open(home.supervisor_log, flags, 0o600)
    try:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "determined.platform.supervisor", str(home.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=inherited(os.environ),
            start_new_session=True,
        )
    finally:
        os.close(log)
    # It outlives us; but if it ends first, it must be waited for.
    threading.Thread(target=supervisor.wait, name="supervisor", daemon=True).start()
    return supervisor


def refuse_stopped(home: Home) -> None:
    """Raise DeterminedError if the supervisor is suspended: nobody would notice otherwise."""
    from determined._os import processes

    facts = find(home)
    process = None if facts is None else processes.find(facts.pid)
    if process is not None and process.is_stopped:
        raise DeterminedError(
            f"The supervisor, process {process.pid}, was stopped by a signal. `kill -CONT "
            f"{process.pid}` resumes it; it then does what it was asked to do."
        )


def end_older(home: Home) -> bool:
    """End the running supervisor if its version is older than ours; runs continue."""
    facts = find(home)
    return facts is not None and _numbers(facts.version) < _numbers(__version__) and stop(home)


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version as numbers; what follows them is left out."""
    release = re.match(r"[0-9]+(\.[0-9]+)*", version)
    return tuple(int(number) for number in release[0].split(".")) if release else ()


def stop(home: Home, timeout_seconds: float = 30.0) -> bool:
    """Ask the supervisor to exit and wait for it; False if there is none. Runs continue."""
    facts = find(home)
    if facts is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(facts.pid, signal.SIGTERM)
        os.kill(facts.pid, signal.SIGCONT)  # in case it is suspended
    deadline = time.monotonic() + timeout_seconds
    while find(home) == facts and time.monotonic() < deadline:
        time.sleep(0.02)
    return find(home) != facts
