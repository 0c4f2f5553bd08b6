"""Runs of several ranks under a keeper: who is blamed, and that killing leaves nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from determined._os import processes
from determined.platform.machines.slots import free_ports, port_variables
from determined.platform.runs.entrypoint import command_for
from determined.platform.runs.environment import RecordedEnvironment
from determined.platform.runs.folder import RunExit, RunFolder, RunSpec
from determined.platform.runs.launchers.local import LocalLauncher
from determined.platform.runs.variables import run_environment
from tests.support.runs import assert_nothing_left, eventually, processes_of

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_LAUNCH = "python3 -m determined.launch.torch_distributed python3 train.py"


def make_run(folder: Path, script: str, slots: int, entrypoint: str | list[str]) -> RunFolder:
    """A run as the platform makes it: description, environment, code."""
    run = RunFolder(folder)
    allocation_id = f"1.{uuid.uuid4()}.1"
    cluster = {
        **{"master_url": "", "cluster_id": "c", "agent_id": "a", "slot_ids": list(range(slots))},
        **{"task_id": allocation_id[:-2], "allocation_id": allocation_id, "session_token": "s"},
        "task_type": "TRIAL",
    }
    trial = {
        **{"trial_id": 1, "experiment_id": 1, "trial_seed": 0, "hparams": {}, "debug": False},
        **{"config": {}, "steps_completed": 0, "trial_run_id": 1},
    }
    rendezvous = {
        **{"container_addrs": ["127.0.0.1"], "container_rank": 0},
        "container_slot_counts": [slots],
    }
    info: dict[str, dict[str, Any]] = {
        **{"cluster": cluster, "trial": trial, "rendezvous": rendezvous}
    }
    recorded = RecordedEnvironment(sys.executable, dict(os.environ), 1, ())
    environment = run_environment(recorded, run, info, ports=port_variables(free_ports()))
    spec = RunSpec(command_for(entrypoint, sys.executable), allocation_id)
    run.create(spec, environment, info)
    (run.workdir / "train.py").write_text(script)
    return run


def keep(run: RunFolder) -> RunExit:
    async def whole() -> RunExit | None:
        launcher = LocalLauncher()
        await launcher.start(run)
        return await asyncio.wait_for(launcher.wait(run), 110)

    end = asyncio.run(whole())
    assert end is not None, run.keeper_errors.read_text()
    assert_nothing_left(run)
    return end


_TELLS = "import os; print('worker', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"


@pytest.mark.parametrize(("slots", "workers"), [(0, 1), (1, 1), (2, 2)])
def test_there_is_a_worker_per_slot_and_at_least_one(
    slots: int, workers: int, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", _TELLS, slots, _LAUNCH)
    assert keep(run).exit_code == 0, run.log.read_text()
    expected = {f"[rank={rank}] worker {rank} of {workers}" for rank in range(workers)}
    assert expected <= set(run.log.read_text().splitlines())


def test_python3_is_the_creators_interpreter(tmp_path: Path) -> None:
    script = "import sys; print(sys.executable)"
    run = make_run(tmp_path / "run", script, 0, ["python3", "train.py"])
    keep(run)
    assert Path(run.log.read_text().strip()).parent == Path(sys.executable).parent


def test_the_rank_that_failed_is_blamed_with_its_traceback(tmp_path: Path) -> None:
    script = (
        "import os, time\n"
        "if os.environ['RANK'] == '1': raise ValueError('of rank one')\n"
        "time.sleep(600)\n"
    )
    run = make_run(tmp_path / "run", script, 2, _LAUNCH)
    end = keep(run)
    assert end.exit_code == 1
    assert end.traceback is not None
    assert end.traceback.rank == 1
    assert end.traceback.text.splitlines()[-1] == "ValueError: of rank one"
    assert "=== rank 1 failed first, with exit code 1" in run.log.read_text()


_STAYS = (
    "import os, subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print('ready', flush=True); time.sleep(600)\n"
)


def until_both_are_ready(run: RunFolder) -> None:
    asyncio.run(LocalLauncher().start(run))
    eventually(lambda: run.log.exists() and run.log.read_text().count("ready") == 2, "both ranks")
    assert len(processes_of(run)) >= 8  # a keeper, two launchers, and three for each rank


def test_killing_a_run_of_several_ranks_leaves_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", _STAYS, 2, _LAUNCH)
    until_both_are_ready(run)
    end = asyncio.run(LocalLauncher().kill(run))
    assert end is not None
    assert end.stopped_by == "SIGKILL"
    assert_nothing_left(run)


def test_a_killed_keeper_takes_all_ranks_with_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", _STAYS, 2, _LAUNCH)
    until_both_are_ready(run)
    assert run.keeper is not None
    keeper = processes.look_up(run.keeper)
    assert keeper is not None
    processes.send(keeper, signal.SIGKILL)
    assert asyncio.run(LocalLauncher().wait(run)) is None
    asyncio.run(LocalLauncher().declare_dead(run, "Its keeper was killed."))
    assert_nothing_left(run)
