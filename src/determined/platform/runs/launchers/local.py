"""Runs on this machine: each has a keeper process that outlives the process that started it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from determined._os import processes
from determined._os.regular_file import open_regular
from determined.errors import DeterminedError
from determined.platform.runs.folder import RUN_VARIABLE, RunExit, RunFolder
from determined.platform.runs.job_order import load_order
from determined.platform.runs.launchers.ends import lost
from determined.platform.runs.launchers.protocol import (
    RunAlreadyStartedError,
    RunState,
    RunStillLiveError,
)
from determined.platform.runs.placement import load_placement
from determined.platform.runs.warm.client import ForkServerLostError, ForkServers, Offer
from determined.platform.runs.warm.program import Cold

_KEEPER = Path(__file__).parents[1] / "keeper" / "__main__.py"
_KEEPERS_LOCK = 3  # the descriptor of the lock in the keeper
_NOT_A_KEEPERS = ("DET_ALLOCATION_ID", RUN_VARIABLE)  # it is not part of a run itself
_POLL_SECONDS = 0.2
_LOCK_SECONDS = 0.5
_KEEPERS_END_SECONDS = 2.0
_UNRESPONSIVE_AFTER_SECONDS = 30.0
_ORPHAN_GRACE_SECONDS = 10.0
_MOST_ERRORS_BYTES = 1 << 20


class LocalLauncher:
    """Starts keepers, and finds them again by their locks."""

    def __init__(
        self,
        unresponsive_after_seconds: float = _UNRESPONSIVE_AFTER_SECONDS,
        *,
        disowns: bool = False,
    ) -> None:
        """With `disowns`, keepers are not children of this process, which may be ended together
        with its children."""
        self._unresponsive_after = unresponsive_after_seconds
        self._disowns = disowns
        self._children: dict[Path, int] = {}
        self._fork_servers = ForkServers()

    async def start(self, run: RunFolder) -> None:
        offer: Offer | Cold | None
        offer = await self._fork_servers.prepare(run)  # before the lock: it may take a while
        alive: int | None
        try:
            alive = await self._take_lock(run, give_up=lambda: run.was_started)
        except TimeoutError:
            raise RunAlreadyStartedError(
                f"{run.path} is already handled by another process."
            ) from None
        try:
            try:
                run.mark_started()
            except FileExistsError:
                raise RunAlreadyStartedError(f"{run.path} was started before.") from None
            if isinstance(offer, Offer):
                offer, alive = await _start_warm(run, alive, offer)
            if isinstance(offer, Cold):
                assert alive is not None
                note = f"Cold start: {offer.reason}." if offer.lasts else ""
                self._children[run.path] = _start_keeper(run, alive, note, self._disowns)
                if self._disowns:
                    await asyncio.to_thread(self._reap, run)  # it has handed over to its child
        finally:
            if alive is not None:
                os.close(alive)  # the keeper has it

    async def states(self, runs: Iterable[RunFolder]) -> list[RunState]:
        runs = list(runs)
        for run in runs:
            _refuse_those_of_clusters(run)
        return [_state(run) for run in runs]

    async def wait(self, run: RunFolder) -> RunExit | None:
        _refuse_those_of_clusters(run)
        while run.is_locked:
            keeper = run.keeper
            descriptor = None if keeper is None else _open_process(keeper)
            if descriptor is None:  # just starting, just ended, or no pidfd here
                await asyncio.sleep(_POLL_SECONDS / 10 if keeper is None else _POLL_SECONDS)
                continue
            try:
                await _readable(descriptor)
            finally:
                os.close(descriptor)
        if not run.alive.exists():
            await _wait_without_folder(run)
        self._reap(run)
        return run.exit

    async def collect(self, run: RunFolder) -> None:
        """Nothing to do: everything is written in place."""

    async def send_control(self, run: RunFolder) -> None:
        """Nothing to do: the control file is read in place."""

    async def terminate(self, run: RunFolder) -> None:
        await self._reach_keeper(run, signal.SIGTERM)

    async def kill(self, run: RunFolder) -> RunExit | None:
        await self._reach_keeper(run, signal.SIGQUIT)
        if not run.alive.exists():
            await asyncio.to_thread(_end_orphans, run)
        try:
            return await asyncio.wait_for(self.wait(run), self._unresponsive_after)
        except asyncio.TimeoutError:
            if not self._signal_keeper(run, signal.SIGKILL):  # its pid is not known
                await asyncio.to_thread(_end_orphans, run)
        await self.wait(run)
        return await self.declare_dead(run, "Its keeper did not respond, so it was killed.")

    async def declare_dead(self, run: RunFolder, why: str) -> RunExit:
        _refuse_those_of_clusters(run)
        try:
            alive = await self._take_lock(run, give_up=lambda: False)
        except TimeoutError:
            raise RunStillLiveError(
                f"The keeper of {run.path} lives: stop the run first."
            ) from None
        except FileNotFoundError:
            leftover = await asyncio.to_thread(_end_orphans, run)
            return _lost(run, "Its folder was deleted.")._replace(leftover_processes=leftover)
        try:
            self._reap(run)
            end = run.exit
            if end is None:
                leftover = await asyncio.to_thread(_end_orphans, run)
                end = run.save_exit(_lost(run, why)._replace(leftover_processes=leftover))
            return end
        finally:
            os.close(alive)

    async def close(self) -> None:
        """Nothing to do: there is no connection."""

    async def _take_lock(self, run: RunFolder, give_up: Callable[[], bool]) -> int:
        """Return the lock; TimeoutError if another process holds it.

        A process that only checks whether it is free holds it for a moment: wait for those.
        """
        deadline = time.monotonic() + _LOCK_SECONDS
        while (alive := run.try_lock()) is None:
            if give_up() or time.monotonic() > deadline:
                raise TimeoutError
            await asyncio.sleep(_POLL_SECONDS / 10)
        return alive

    async def _reach_keeper(self, run: RunFolder, number: int) -> None:
        """Send a signal to the keeper, which may not have recorded its pid yet."""
        deadline = time.monotonic() + self._unresponsive_after
        while run.is_locked and not self._signal_keeper(run, number):
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(_POLL_SECONDS / 10)

    def _signal_keeper(self, run: RunFolder, number: int) -> bool:
        keeper = run.keeper if run.is_locked else None
        process = None if keeper is None else processes.look_up(keeper)
        if process is None:
            return False
        sent = processes.send(process, number)
        processes.send(process, signal.SIGCONT)  # in case it is suspended
        return sent

    def _reap(self, run: RunFolder) -> None:
        pid = self._children.pop(run.path, None)
        if pid is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)  # the lock was free, so it is about to exit


async def _start_warm(run: RunFolder, alive: int, offer: Offer) -> tuple[Cold | None, int | None]:
    """Have the keeper forked; return why it was not (None if it was), and the run's lock."""
    own = os.dup(alive)  # for the thread, which cannot be canceled
    try:
        return await asyncio.to_thread(offer.server.keep, offer.program, run, own), alive
    except ForkServerLostError:
        os.close(alive)
    # A keeper that it had forked by then holds the lock, or held it and left a record.
    again = run.try_lock()
    was_kept = again is None or run.keeper is not None
    return None if was_kept else Cold("the fork server is gone", lasts=False), again


def _start_keeper(run: RunFolder, alive: int, note: str, disown: bool) -> int:
    """Start a keeper in its own session, which inherits the lock, and return its pid."""
    arguments = [str(run.path.absolute()), str(_KEEPERS_LOCK), note]
    if disown:
        arguments.append("disown")
    # Without site packages it starts much faster; on other systems it needs psutil.
    flags = ["-I", "-S"] if sys.platform == "linux" else ["-E"]
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        [sys.executable, *flags, str(_KEEPER), *arguments],
        {name: value for name, value in os.environ.items() if name not in _NOT_A_KEEPERS},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, run.keeper_errors, append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, alive, _KEEPERS_LOCK),
        ],
        setsid=True,
        setsigmask=(),
    )


def _refuse_those_of_clusters(run: RunFolder) -> None:
    """It cannot be known here whether they are alive, so they must not start again."""
    is_elsewhere = load_placement(run) is not None or load_order(run) is not None
    if is_elsewhere and run.was_started and run.exit is None:
        raise DeterminedError(
            f"{run.path} was started on a cluster, and may still run there: set DET_CLUSTER, or "
            "`cluster:` in platform.yaml, to that cluster again until it has ended."
        )


def _state(run: RunFolder) -> RunState:
    if not run.was_started:
        return RunState.NOT_STARTED
    if not run.is_locked:
        return RunState.LOST if run.exit is None else RunState.ENDED
    for identity, suspended in (
        (run.keeper, RunState.KEEPER_SUSPENDED),
        (run.entrypoint, RunState.SUSPENDED),
    ):
        process = None if identity is None else processes.look_up(identity)
        if process is not None and process.is_stopped:
            return suspended
    return RunState.RUNNING


def _open_process(identity: processes.Identity) -> int | None:
    """Return a descriptor that becomes readable when the process ends."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        descriptor = os.pidfd_open(identity.pid)
    except OSError:
        return None
    if processes.look_up(identity) is None:
        os.close(descriptor)
        return None
    return descriptor


async def _wait_without_folder(run: RunFolder) -> None:
    """Wait for the end of a run that deleted its folder: its keeper records it in a new one."""
    folder = str(run.path.absolute())
    deadline = time.monotonic() + _KEEPERS_END_SECONDS
    while run.exit is None and time.monotonic() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
        if await asyncio.to_thread(processes.with_variable, RUN_VARIABLE, folder):
            deadline = time.monotonic() + _KEEPERS_END_SECONDS


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)


def _end_orphans(run: RunFolder) -> int:
    folder = str(run.path.absolute())
    deadline = time.monotonic() + _ORPHAN_GRACE_SECONDS
    return processes.end_all(
        lambda: processes.with_variable(RUN_VARIABLE, folder), lambda: deadline
    )


def _lost(run: RunFolder, why: str) -> RunExit:
    """With what its keeper wrote before it was gone."""
    with contextlib.suppress(OSError):
        with open_regular(run.keeper_errors) as file:
            errors = file.read(_MOST_ERRORS_BYTES).decode(errors="replace").strip()
        why = f"{why} Its keeper wrote: {errors[-2000:]}" if errors else why
    return lost(run, why)
