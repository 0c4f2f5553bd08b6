"""torchrun starts dead ranks again, and they end where an unbroken run does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import elastic
from tests.support.workers import run_workers

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(300)]

DEADLINE_SECONDS = 180


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights of a run without deaths."""
    output = tmp_path_factory.mktemp("unbroken")
    run_workers(
        2,
        elastic.main,
        str(output),
        environment={"TORCHELASTIC_RESTART_COUNT": "0", "DET_PROGRESS": "off"},
    )
    return (output / "weights").read_text()


def test_a_run_survives_dying_ranks_to_the_same_weights(unbroken: str, tmp_path: Path) -> None:
    run_workers(
        1, _launch_forks, tmp_path, 2, deadline_seconds=DEADLINE_SECONDS, process_group=False
    )
    _check(tmp_path, ["death-0-0", "death-1-1"], unbroken)


def _launch_forks(output: Path, deaths: int) -> None:
    """Do what torchrun does, with forks of this process, which has torch loaded, as its ranks."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=deaths,
        start_method="fork",
    )
    elastic_launch(config, elastic.main)(str(output), str(deaths))


def test_so_it_does_with_our_launcher(unbroken: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "determined.launch.torch_distributed", "--nproc_per_node=2"]
    command += ["--max-restarts=1", "--", sys.executable, "-m", "tests.support.elastic"]
    done = subprocess.run(
        [*command, str(tmp_path), "1"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    _check(tmp_path, ["death-0-0"], unbroken)


def _check(output: Path, deaths: list[str], weights: str) -> None:
    assert sorted(path.name for path in output.glob("death-*")) == deaths
    assert (output / "weights").read_text() == weights
