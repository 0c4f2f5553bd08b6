"""Launches below our launcher, warm: who is whose, and what happens when somebody dies."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import psutil
import pytest

from determined._os import processes
from determined.platform.runs.folder import RUN_VARIABLE, RunFolder
from tests.platform.runs.warm.conftest import Bench
from tests.support.other_user import as_other_user
from tests.support.waiting import eventually

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]

_COMMAND = ("-m", "determined.launch.torch_distributed", "--nproc_per_node", "2", "--")
_WAIT = """
import os, sys, time
print("warm" if "torch" in sys.modules else "cold", os.environ.get("DET_WARM_RANKS"), flush=True)
print("worker", os.getpid(), flush=True)
time.sleep(600)
"""


def start(bench: Bench, program: str) -> tuple[RunFolder, list[int]]:
    """Start a launch of two workers; return the run and their pids once they are there."""
    run = bench.lay_out(*_COMMAND, "python3", "program.py", files={"program.py": program})
    asyncio.run(bench.launcher.start(run))
    eventually(lambda: run.log.exists() and run.log.read_text().count("worker ") == 2)
    lines = run.log.read_text().splitlines()
    assert sum("warm None" in line for line in lines) == 2, lines
    return run, [int(line.split()[-1]) for line in lines if "worker " in line]


def members(run: RunFolder) -> list[processes.Process]:
    return processes.with_variable(RUN_VARIABLE, str(run.path))


def assert_closed_to_other_users(fork_server: psutil.Process | None) -> None:
    """The name of its socket is a secret; whoever finds it out is nobody to talk to, yet."""
    assert fork_server is not None
    (name,) = {str(c.laddr) for c in fork_server.net_connections("unix") if c.laddr}

    def call() -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"\0{name.removeprefix('@')}")
            connection.settimeout(60)
            return connection.recv(1).hex() or "hung up"

    if os.getuid() == 0:
        assert as_other_user(call) == "hung up"


def test_a_launch_that_is_told_to_stop_ends_as_a_whole(bench: Bench) -> None:
    run, workers = start(bench, _WAIT)
    assert run.entrypoint is not None  # the keeper watches it
    assert {process.pid for process in members(run)} >= set(workers)
    assert_closed_to_other_users(psutil.Process(workers[0]).parent())
    asyncio.run(bench.launcher.terminate(run))
    end = asyncio.run(bench.launcher.wait(run))
    assert end is not None
    assert (end.exit_code, end.stopped_by) == (128 + signal.SIGTERM, "SIGTERM")
    assert members(run) == []


@pytest.mark.parametrize("victim", ["wrapper", "worker", "fork server", "launcher", "torchrun"])
def test_no_worker_outlives_a_launch_that_loses_one_of_its_processes(
    bench: Bench, victim: str
) -> None:
    run, workers = start(bench, _WAIT)
    assert run.entrypoint is not None
    fork_server = psutil.Process(workers[0]).ppid()
    words = {"wrapper": "determined.launch.wrap_rank", "torchrun": "determined.launch.torchrun"}
    pids = {"worker": workers[0], "fork server": fork_server, "launcher": run.entrypoint.pid}
    if victim in words:
        found = {p.pid: " ".join(psutil.Process(p.pid).cmdline()) for p in members(run)}
        matching = [pid for pid, text in found.items() if f"-m {words[victim]}" in text]
        pids[victim] = matching[0]
    os.kill(pids[victim], signal.SIGKILL)
    end = asyncio.run(bench.launcher.wait(run))
    assert end is not None
    assert end.exit_code != 0
    assert members(run) == []
    assert not any(map(psutil.pid_exists, workers))
