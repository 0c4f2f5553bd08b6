"""The interface of a launcher, as the supervisor uses it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Protocol

from determined.errors import DeterminedError
from determined.platform.runs.folder import RunExit, RunFolder


class RunState(enum.Enum):
    """The state of a run, as far as its processes are concerned."""

    NOT_STARTED = "not started"
    RUNNING = "running"
    SUSPENDED = "suspended"  # the entrypoint got SIGSTOP: it may continue any time
    KEEPER_SUSPENDED = "keeper suspended"  # the entrypoint runs, but unwatched
    ENDED = "ended"
    LOST = "lost"  # its keeper is gone and left no record

    @property
    def is_live(self) -> bool:
        return self in (RunState.RUNNING, RunState.SUSPENDED, RunState.KEEPER_SUSPENDED)


class RunAlreadyStartedError(DeterminedError):
    """A run is started at most once, and there was an attempt before this one."""


class RunStillLiveError(DeterminedError):
    """A run cannot be declared dead while its keeper is alive."""


class RunNotPlacedError(DeterminedError):
    """A run cannot start where it was placed, through no fault of its own: place it again."""


class Launcher(Protocol):
    """Starts, finds, stops and collects runs. Every call may be repeated after a crash.

    The run's folder is the only state: a launcher created later, in another process, serves runs
    that an earlier one started.
    """

    async def start(self, run: RunFolder) -> None:
        """Start a run whose folder is complete.

        RunAlreadyStartedError the second time, in any process. RunNotPlacedError, before anything
        was started, if its place is gone or taken.
        """

    async def states(self, runs: Iterable[RunFolder]) -> list[RunState]:
        """Return the states of runs, in their order."""

    async def wait(self, run: RunFolder) -> RunExit | None:
        """Return how a started run ended, once it has; None when it is lost."""

    async def collect(self, run: RunFolder) -> None:
        """Copy what a run has written so far to its folder; `wait` does so by itself."""

    async def send_control(self, run: RunFolder) -> None:
        """Copy the control file of a started run to where its processes read it."""

    async def terminate(self, run: RunFolder) -> None:
        """Ask a run to end: SIGTERM now, SIGKILL after its grace period."""

    async def kill(self, run: RunFolder) -> RunExit | None:
        """End all processes of a run at once and return as `wait` does; None if never started."""

    async def declare_dead(self, run: RunFolder, why: str) -> RunExit:
        """Close a run that is lost, or never started: an infrastructure fault.

        Ends processes of it that are still there. Returns how it ended if that is known after all;
        RunStillLiveError if its keeper is alive.
        """

    async def close(self) -> None:
        """Release resources; the runs continue."""
