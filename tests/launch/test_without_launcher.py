"""Ranks that were started one by one: they meet by address and port alone."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from determined.core._distributed import DistributedContext
from determined.core.ranks import listeners, rendezvous
from determined.errors import DistributedError
from tests.support.messages import documented
from tests.support.workers import free_port

pytestmark = pytest.mark.multiprocess

DEADLINE_SECONDS = 60
SCRIPT = """
import os, sys
from determined import core
rank, size, port = map(int, sys.argv[1:4])
with core.DistributedContext(
    rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1,
    chief_ip="127.0.0.1", pub_port=port,
) as distributed:
    print("met", distributed.allgather(sys.argv[4]), flush=True)
"""
TWO: dict[str, Any] = {"size": 2, "local_size": 2, "cross_rank": 0, "cross_size": 1}
WRAPPED = [sys.executable, "-m", "determined.launch.wrap_rank"]


def start(
    command: Sequence[str], *, from_shell: bool = False, **environment: str
) -> subprocess.Popen[str]:
    if from_shell:  # one that stays in between, as a window's does
        command = ["sh", "-c", f"{shlex.join(command)}; exit $?"]
    return subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def rank_of(script: Path, rank: int, port: int, job: str = "job", size: int = 2) -> list[str]:
    return [sys.executable, str(script), str(rank), str(size), str(port), job]


def outputs(*processes: subprocess.Popen[str]) -> list[str]:
    texts = [process.communicate(timeout=DEADLINE_SECONDS)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), texts
    return texts


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("first", [0, 1])
def test_ranks_behind_wrap_rank_meet(first: int, script: Path) -> None:
    port = free_port()
    ranks = (first, 1 - first)
    commands = [[*WRAPPED, str(rank), "--", *rank_of(script, rank, port)] for rank in ranks]
    for text in outputs(*map(start, commands)):
        assert "met ['job', 'job']" in text


def test_ranks_from_two_shells_meet(script: Path) -> None:
    port = free_port()
    shells = [start(rank_of(script, rank, port), from_shell=True) for rank in (1, 0)]
    for text in outputs(*shells):
        assert "met ['job', 'job']" in text


def test_a_common_secret_leads_them_together_without_common_files(
    script: Path, tmp_path: Path
) -> None:
    port, shells = free_port(), []
    for rank in range(2):
        (tmp_path / f"tmp-{rank}").mkdir()
        variables = {"TMPDIR": str(tmp_path / f"tmp-{rank}"), "DET_COMM_SECRET": "ours"}
        shells.append(start(rank_of(script, rank, port), from_shell=True, **variables))
    for text in outputs(*shells):
        assert "met ['job', 'job']" in text


def test_jobs_with_secrets_of_their_own_share_a_port(script: Path) -> None:
    port = free_port()
    jobs = {
        name: [
            start(rank_of(script, rank, port, name), from_shell=True, DET_COMM_SECRET=name)
            for rank in (1, 0)
        ]
        for name in ("red", "blue")
    }
    for name, shells in jobs.items():
        for text in outputs(*shells):
            assert f"met ['{name}', '{name}']" in text


def test_a_port_that_is_taken_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_COLLECTIVE_TIMEOUT", "0.5")
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        with pytest.raises(DistributedError, match="is in use by another program") as caught:
            DistributedContext(rank=0, local_rank=0, **TWO, pub_port=port)
    documented("the chief's port belongs to another program", str(caught.value), port)


def test_a_second_process_of_one_rank_is_an_error(script: Path) -> None:
    port = free_port()
    chief = start(rank_of(script, 0, port, size=3), from_shell=True)
    twins = [start(rank_of(script, 1, port, size=3), from_shell=True) for _ in range(2)]
    text = chief.communicate(timeout=DEADLINE_SECONDS)[0]
    assert chief.returncode != 0
    assert "rank 1 is already taken, or not a rank of this job" in text
    for twin in twins:
        twin.terminate()
        twin.communicate(timeout=DEADLINE_SECONDS)


def test_ranks_of_two_scripts_are_mentioned(script: Path, tmp_path: Path) -> None:
    port, other = free_port(), tmp_path / "other.py"
    other.write_text(SCRIPT)
    chief, _ = outputs(
        start(rank_of(script, 0, port), from_shell=True),
        start(rank_of(other, 1, port), from_shell=True),
    )
    warning = next(line for line in chief.splitlines() if "if these are two jobs" in line)
    documented("ranks of two scripts have met at one port", warning, script, other)


@pytest.mark.parametrize("rank", [0, 1])
def test_who_waits_is_told_what_to_do(
    rank: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listeners, "_FIRST_REMINDER_SECONDS", 0.2)
    monkeypatch.setattr(rendezvous, "_PORTLESS_SECONDS", 0.0)
    monkeypatch.setenv("DET_COLLECTIVE_TIMEOUT", "1")
    port = free_port()
    with pytest.raises(DistributedError, match=f"127.0.0.1, port {port}: start each of the 2"):
        DistributedContext(rank=rank, local_rank=rank, **TWO, pub_port=port)
    whom = ("rank 1", "the chief, rank 0")[rank]
    assert f"rank {rank} is still waiting for {whom}" in caplog.text
    reminder = next(r.getMessage() for r in caplog.records if "still waiting" in r.getMessage())
    documented(f"rank {rank} waits for the other, started by hand", reminder, port)
