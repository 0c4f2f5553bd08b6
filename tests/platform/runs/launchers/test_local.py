"""Runs on this machine: the contract, and what happens when processes die."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from determined._os import processes
from determined.platform.runs.folder import LOST, RunFolder
from determined.platform.runs.launchers.local import LocalLauncher
from determined.platform.runs.launchers.protocol import RunAlreadyStartedError, RunState
from tests.platform.runs.launchers.contract import (
    _IGNORES,
    _WAITS,
    LauncherContract,
    start,
    state,
    until_it_prints,
    wait,
)
from tests.support.faults import at_least, mounted
from tests.support.runs import assert_nothing_left, eventually, make_run

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_WATCHES = (
    "from determined.core.hangs.keeper_watch import end_with_keeper; end_with_keeper({!r}, 1)\n"
)


class TestLocalLauncher(LauncherContract):
    def new(self) -> LocalLauncher:
        return LocalLauncher(unresponsive_after_seconds=20)


def keeper_of(run: RunFolder) -> processes.Process:
    identity = run.keeper
    assert identity is not None
    process = processes.look_up(identity)
    assert process is not None
    return process


def test_of_twenty_starts_at_once_one_wins(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    run = make_run(tmp_path / "run", script=f"open({str(marks)!r}, 'a').write('x')")

    def attempt(_: int) -> bool:
        try:
            start(LocalLauncher(), run)
        except RunAlreadyStartedError:
            return False
        return True

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(attempt, range(20))) == 1
    wait(LocalLauncher(), run)
    assert marks.read_text() == "x"
    assert_nothing_left(run)


def test_starts_from_several_processes_have_one_winner_too(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", script=_WAITS)
    code = (
        "import asyncio, sys\n"
        "from determined.platform.runs.launchers.local import LocalLauncher\n"
        "from determined.platform.runs.folder import RunFolder\n"
        "asyncio.run(LocalLauncher().start(RunFolder(sys.argv[1])))\n"
    )
    starters = [
        subprocess.Popen([sys.executable, "-c", code, str(run.path)], stderr=subprocess.DEVNULL)
        for _ in range(6)
    ]
    assert sorted(starter.wait(60) for starter in starters) == [0, 1, 1, 1, 1, 1]
    # Its launcher is gone by now, and the run lives on.
    assert state(LocalLauncher(), run) is RunState.RUNNING
    asyncio.run(LocalLauncher().kill(run))
    assert_nothing_left(run)


def test_a_run_outlives_the_death_of_its_launcher(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = (
        "import os, time; print('up')\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "print('done'); raise SystemExit(3)"
    )
    run = make_run(tmp_path / "run", script=script)
    code = (
        "import asyncio, sys, time\n"
        "from determined.platform.runs.launchers.local import LocalLauncher\n"
        "from determined.platform.runs.folder import RunFolder\n"
        "asyncio.run(LocalLauncher().start(RunFolder(sys.argv[1]))); time.sleep(600)\n"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code, str(run.path)], start_new_session=True
    )
    until_it_prints(run)
    os.killpg(supervisor.pid, signal.SIGKILL)
    supervisor.wait()
    assert state(LocalLauncher(), run) is RunState.RUNNING
    gate.touch()
    end = wait(LocalLauncher(), run)
    assert end is not None
    assert end.exit_code == 3
    assert run.log.read_text() == "up\ndone\n"
    assert_nothing_left(run)


def test_a_killed_keeper_takes_the_entrypoint_with_it(tmp_path: Path) -> None:
    launcher = LocalLauncher()
    run = make_run(tmp_path / "run", script=_WAITS)
    start(launcher, run)
    until_it_prints(run)
    processes.send(keeper_of(run), signal.SIGKILL)
    assert wait(launcher, run) is None
    assert state(launcher, run) is RunState.LOST
    end = asyncio.run(launcher.declare_dead(run, "Its keeper was killed."))
    assert (end.reason, end.last_lines) == (LOST, ("up",))
    assert_nothing_left(run)


def test_a_killed_keeper_on_a_full_disk_is_declared_dead(tmp_path: Path) -> None:
    launcher = LocalLauncher()
    disk = tmp_path / "disk"
    with mounted("-t", "tmpfs", "-o", "size=1m", "tmpfs", at=disk):
        run = make_run(disk / "run", script=_WAITS, env={"PYTHONDONTWRITEBYTECODE": "1"})
        start(launcher, run)
        until_it_prints(run)
        processes.send(keeper_of(run), signal.SIGKILL)
        assert wait(launcher, run) is None
        with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(4096)):
                pass
        end = asyncio.run(launcher.declare_dead(run, "Its keeper was killed."))
        assert end.last_lines[-1] == f"There is no room left on the disk of {run.path}."
        assert run.exit == end
        assert not (run.path / "room").exists()


_DELETES_ITS_FOLDER = "import os, shutil, time\nshutil.rmtree(os.environ['DET_RUN_DIR'])\n"


def test_a_run_that_deletes_its_folder_at_once_is_waited_for(tmp_path: Path) -> None:
    launcher = LocalLauncher()
    run = make_run(tmp_path / "run", script=_DELETES_ITS_FOLDER + "time.sleep(1)")
    start(launcher, run)
    eventually(lambda: not run.alive.exists())
    end = wait(launcher, run)
    assert end is not None
    assert end.exit_code == 0
    assert not processes.with_variable("DET_RUN_DIR", str(run.path))


def test_a_run_without_a_folder_can_be_killed(tmp_path: Path) -> None:
    launcher = LocalLauncher()
    run = make_run(tmp_path / "run", script=_DELETES_ITS_FOLDER + "time.sleep(600)")
    start(launcher, run)
    eventually(lambda: not run.alive.exists())
    end = asyncio.run(launcher.kill(run))
    assert end is not None
    assert end.exit_code != 0
    assert not processes.with_variable("DET_RUN_DIR", str(run.path))


def test_a_rank_ends_itself_when_its_keeper_is_gone(tmp_path: Path) -> None:
    """One that the keeper's death does not reach: it ignores SIGTERM, in a session of its own."""
    launcher = LocalLauncher()
    alive = str(tmp_path / "run" / "alive")
    rank = "import os\nif os.fork(): os.wait()\nos.setsid()\n" + _WATCHES.format(alive) + _IGNORES
    run = make_run(tmp_path / "run", script=rank)
    start(launcher, run)
    until_it_prints(run)
    processes.send(keeper_of(run), signal.SIGKILL)
    assert_nothing_left(run)  # without any help
    asyncio.run(launcher.declare_dead(run, "Its keeper was killed."))


def test_declaring_a_run_dead_ends_what_is_left_of_it(tmp_path: Path) -> None:
    launcher = LocalLauncher()
    script = "import os\nif os.fork(): os.wait()\nos.setsid()\n" + _WAITS
    run = make_run(tmp_path / "run", script=script)
    start(launcher, run)
    until_it_prints(run)
    processes.send(keeper_of(run), signal.SIGKILL)
    assert wait(launcher, run) is None
    end = asyncio.run(launcher.declare_dead(run, "Its keeper was killed."))
    assert end.leftover_processes >= 1
    assert_nothing_left(run)


def test_suspended_processes_are_told_apart(tmp_path: Path) -> None:
    launcher = LocalLauncher()
    run = make_run(tmp_path / "run", script=_WAITS)
    start(launcher, run)
    until_it_prints(run)
    eventually(lambda: run.entrypoint)
    assert run.entrypoint is not None
    os.kill(run.entrypoint.pid, signal.SIGSTOP)
    eventually(lambda: state(launcher, run) is RunState.SUSPENDED, "suspension")
    processes.send(keeper_of(run), signal.SIGSTOP)
    eventually(lambda: state(launcher, run) is RunState.KEEPER_SUSPENDED, "suspension")
    end = asyncio.run(launcher.kill(run))  # wakes the keeper up, which does it
    assert end is not None
    assert end.reason != LOST
    assert_nothing_left(run)


def test_a_keeper_that_does_not_answer_is_killed_and_its_run_is_lost(tmp_path: Path) -> None:
    launcher = LocalLauncher(unresponsive_after_seconds=0.5)
    run = make_run(tmp_path / "run", script=_WAITS)
    start(launcher, run)
    until_it_prints(run)
    keeper = keeper_of(run)
    stop = subprocess.Popen(  # again and again, so that SIGCONT does not help
        [
            sys.executable,
            "-c",
            f"import os\nwhile True:\n try: os.kill({keeper.pid}, 19)\n except OSError: break",
        ]
    )
    time.sleep(0.2)
    end = asyncio.run(asyncio.wait_for(launcher.kill(run), 60))
    stop.wait(60)
    assert end is not None
    assert end.exit_code == 137
    assert_nothing_left(run)


def test_waiting_costs_no_threads_and_serves_many_runs(tmp_path: Path) -> None:
    launcher = LocalLauncher()
    runs = [make_run(tmp_path / f"run {n}", "sh", "-c", f"exit {n}") for n in range(6)]

    async def everything() -> list[int]:
        for run in runs:
            await launcher.start(run)
        ends = await asyncio.gather(*(launcher.wait(run) for run in runs))
        return [end.exit_code for end in ends if end is not None]

    assert asyncio.run(asyncio.wait_for(everything(), 60)) == list(range(6))
    for run in runs:
        assert_nothing_left(run)


_STARTS_MANY = """
import asyncio, sys
from pathlib import Path
from random import Random
from determined.platform.runs.launchers.local import LocalLauncher
from determined.platform.runs.folder import RunFolder

async def main():
    launcher = LocalLauncher()
    print("ready", flush=True)
    for folder in sys.argv[1:]:
        await launcher.start(RunFolder(folder))

asyncio.run(main())
"""


@pytest.mark.parametrize("seed", range(at_least(3, 8)))
def test_a_launcher_killed_at_any_instant_starts_nothing_twice(seed: int, tmp_path: Path) -> None:
    """The next one finds each run live, ended, lost or never started, and gets all to their end."""
    random = Random(seed)
    marks = [tmp_path / f"marks {n}" for n in range(12)]
    runs = [
        make_run(tmp_path / f"run {n}", "sh", "-c", f"echo x >> '{mark}'; sleep 0.1")
        for n, mark in enumerate(marks)
    ]
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTS_MANY, *(str(run.path) for run in runs)],
        stdout=subprocess.PIPE,
    )
    assert starter.stdout is not None
    starter.stdout.readline()
    time.sleep(random.uniform(0, 0.1))
    starter.kill()
    starter.wait()
    starter.stdout.close()

    async def finish() -> list[bool]:
        launcher = LocalLauncher()
        lost = []
        for run, found in zip(runs, await launcher.states(runs), strict=True):
            if found is RunState.NOT_STARTED:
                await launcher.start(run)
            end = await launcher.wait(run)
            lost.append(end is None)
            if end is None:
                await launcher.declare_dead(run, "Its launcher was killed.")
        return lost

    lost = asyncio.run(asyncio.wait_for(finish(), 100))
    for run, mark, is_lost in zip(runs, marks, lost, strict=True):
        assert_nothing_left(run)
        assert run.exit is not None
        assert (mark.read_text() if mark.exists() else "") == ("" if is_lost else "x\n")
    assert sum(lost) <= 1  # only the one whose start was cut in half
