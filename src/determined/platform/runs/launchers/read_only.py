"""The runs in a copy of a home: they belong to the home, so nothing here touches their processes.

They are as they were when the copy was made, and count as lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from determined.errors import DeterminedError
from determined.platform.runs.folder import RunExit, RunFolder
from determined.platform.runs.launchers.ends import lost
from determined.platform.runs.launchers.protocol import RunState


class ReadOnlyLauncher:
    """Starts nothing and signals nobody."""

    async def start(self, run: RunFolder) -> None:
        raise DeterminedError(f"{run.path} is in a copy of a home, where nothing is started.")

    async def states(self, runs: Iterable[RunFolder]) -> list[RunState]:
        return [RunState.LOST if run.exit is None else RunState.ENDED for run in runs]

    async def wait(self, run: RunFolder) -> RunExit | None:
        return run.exit

    async def collect(self, run: RunFolder) -> None:
        """Nothing to do: what is here was copied."""

    async def send_control(self, run: RunFolder) -> None:
        """Nothing to do: nobody reads it."""

    async def terminate(self, run: RunFolder) -> None:
        """Nothing to do: its processes belong to another home."""

    async def kill(self, run: RunFolder) -> RunExit | None:
        return run.exit

    async def declare_dead(self, run: RunFolder, why: str) -> RunExit:
        return lost(run, "Its home was copied while it ran.")

    async def close(self) -> None:
        """Nothing to do."""
