"""`python -m determined.platform.supervisor HOME`: work until nothing is left to do."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable

from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from determined.platform.machines.cluster import find_cluster
from determined.platform.machines.slots import Machine, find_slots
from determined.platform.machines.slurm import SlurmSettings
from determined.platform.runs.launchers.local import LocalLauncher
from determined.platform.runs.launchers.protocol import Launcher
from determined.platform.runs.launchers.read_only import ReadOnlyLauncher
from determined.platform.supervisor.loop import Supervisor
from determined.platform.supervisor.presence import Presence
from determined.store import Standing, Writer

_IDLE_VARIABLE = "DET_SUPERVISOR_IDLE_SECONDS"
_IDLE_SECONDS = 300.0


async def supervise(home: Home, presence: Presence) -> None:
    """Work until idle; SIGTERM and SIGINT end it after the current tick. Runs continue."""
    writer = Writer(home.path)
    launcher: Launcher
    machine: Callable[[], Machine]
    if writer.standing is Standing.COPY:
        launcher, machine = ReadOnlyLauncher(), find_slots
    else:
        launcher, machine = await _open_launcher(home)
    for line in machine().skipped:
        logging.warning(line)
    idle_seconds = float(os.environ.get(_IDLE_VARIABLE, _IDLE_SECONDS))
    supervisor = Supervisor(
        home, writer, launcher, machine, idle_seconds, lambda: presence.is_in_place
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    try:
        while True:
            presence.listen(
                loop, supervisor.wake, num_slots=len(machine().slots), cluster=_address(home)
            )
            await supervisor.work()
            # A client that woke us before this line had written its command, which we see below;
            # one that comes later starts another supervisor.
            presence.stop_listening(loop)
            if supervisor.was_told_to_stop or not writer.has_commands():
                return
    finally:
        await launcher.close()
        writer.close()


async def _open_launcher(home: Home) -> tuple[Launcher, Callable[[], Machine]]:
    """Where runs go, and what there is to schedule on."""
    settings = find_cluster(home)
    if settings is None:
        machine = find_slots()
        return LocalLauncher(), lambda: machine
    if isinstance(settings, SlurmSettings):
        from determined.platform.runs.launchers.slurm.cluster import SlurmCluster
        from determined.platform.runs.launchers.slurm.launcher import SlurmLauncher

        slurm = SlurmCluster(home, settings)
        await slurm.look()
        return SlurmLauncher(home, slurm), slurm.machine
    from determined.platform.runs.launchers.ray.cluster import open_cluster
    from determined.platform.runs.launchers.ray.launcher import RayLauncher

    cluster = await open_cluster(home, settings)
    return RayLauncher(cluster), cluster.machine


def _address(home: Home) -> str:
    settings = find_cluster(home)
    return "" if settings is None else settings.address


def main(arguments: list[str]) -> int:
    home = Home(arguments[0])
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO
    )
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    presence = Presence.claim(home)
    if presence is None:
        return 0  # another one is running
    try:
        asyncio.run(supervise(home, presence))
    except DeterminedError as error:
        logging.error("%s", error)
        return 1
    finally:
        presence.release()  # last: until then no other process may write
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
