"""Distributed experiments with torch lose any of their processes, and the weights are the same."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.cli.det import run_det
from tests.faults.platform.random_kills import kind_of
from tests.faults.platform.steady import check_only_the_supervisor_lives
from tests.support import faults
from tests.support.lab import Lab

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(faults.factor() == 1, reason="torch in four processes: long form only"),
]

SCRIPT = """
import time, torch
import torch.distributed as dist
import determined as det
from determined import core

dist.init_process_group("gloo")
distributed = core.DistributedContext.from_torch_distributed()
with core.init(distributed=distributed) as ctx:
    torch.manual_seed(0)
    step, weights, latest = 0, torch.randn(8), det.get_cluster_info().latest_checkpoint
    if latest:
        with ctx.checkpoint.restore_path(latest) as path:
            step, weights = torch.load(path / "state.pt")
    while step < 12:
        step += 1
        gradient = torch.sin(weights * (distributed.rank + 1) + step)
        dist.all_reduce(gradient)
        weights = weights - 0.01 * gradient
        time.sleep(0.2)
        if distributed.rank == 0:
            ctx.train.report_training_metrics(step, {"weights": weights.tolist()})
        if step % 3 == 0:
            if distributed.rank == 0:
                with ctx.checkpoint.store_path({"steps_completed": step}) as (path, _):
                    torch.save((step, weights), path / "state.pt")
            dist.barrier()
"""
LAUNCH = "python3 -m determined.launch.torch_distributed python3 script.py"
VICTIMS = {
    "chief": ["rank 0"],
    "another rank": ["rank 1"],
    "launcher": ["launcher"],
    "fork server": ["fork server"],
    "keeper": ["keeper"],
    "dashboard": ["dashboard"],
    "supervisor and chief": ["supervisor", "rank 0"],
    "fork server and keeper": ["fork server", "keeper"],
    "keeper and rank": ["keeper", "rank 1"],
    "everything": [
        "supervisor",
        "fork server",
        "keeper",
        "launcher",
        "rank 0",
        "rank 1",
        "dashboard",
    ],
}


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Any]]:
    """A lab, and what an undisturbed run reports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        patch.setenv("DET_SLOTS", "2")
        lab = Lab(tmp_path_factory.mktemp("ranks"))
        experiment_id = _create(lab)
        assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
        yield lab, _reported(lab, experiment_id)
        lab.close()


def _create(lab: Lab) -> int:
    resources = {"slots_per_trial": 2}
    return lab.create(SCRIPT, entrypoint=LAUNCH, resources=resources, max_restarts=9)


def _reported(lab: Lab, experiment_id: int) -> list[tuple[int, Any]]:
    (trial,) = lab.trials(experiment_id)
    reports = lab.service.reader.metrics.reports(trial.id, "training")
    return [(report.steps_completed, report.metrics) for report in reports]


def _role(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        rank, words = process.environ().get("RANK"), process.cmdline()
        if "script.py" in words:
            return "launcher" if rank is None else f"rank {rank}"
    return kind_of(process)


def _kill(lab: Lab, roles: list[str]) -> set[str]:
    """Kill the processes of these roles; return whom there were, before others fell with them."""
    everybody = lab.processes()
    everybody += [child for process in everybody for child in _fork_servers_of(process)]
    victims = [(role, p) for p in everybody if (role := _role(p)) in roles]
    for _, process in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return {role for role, _ in victims}


def _fork_servers_of(process: psutil.Process) -> list[psutil.Process]:
    """A fork server belongs to no home, but to the supervisor's family."""
    with contextlib.suppress(psutil.Error):
        return [child for child in process.children() if kind_of(child) == "fork server"]
    return []


@pytest.mark.parametrize("victims", VICTIMS.values(), ids=VICTIMS)
def test_whoever_dies_the_weights_are_those_of_an_unbroken_run(
    crew: tuple[Lab, Any], victims: list[str]
) -> None:
    lab, expected = crew
    words = [sys.executable, "-m", "determined.cli", "dashboard", "--no-browser", "--port", "0"]
    environment = {**os.environ, "DET_HOME": str(lab.home.path), "DET_RUN_DIR": str(lab.home.path)}
    with (
        subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as dashboard,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(dashboard.kill)
        assert dashboard.stdout is not None
        dashboard.stdout.readline()
        experiment_id = _create(lab)
        lab.until(lambda: lab.checkpoints(experiment_id))
        assert _kill(lab, victims) == set(victims)
        lab.wait(experiment_id)
    assert lab.experiment(experiment_id).state == "COMPLETED", lab.account()
    assert _reported(lab, experiment_id) == expected
    check_only_the_supervisor_lives(lab)
    shown = run_det("e", "list", environment={"DET_HOME": str(lab.home.path)})
    assert shown.returncode == 0
