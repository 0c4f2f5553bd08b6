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
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
LAUNCHER = [sys.executable, "-m", "determined.launch.torch_distributed"]
OPTIONS = ["--nproc_per_node=2", "--max-restarts=2"]


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


@pytest.mark.parametrize(
    ("launch", "deaths"),
    [([*TORCHRUN, *OPTIONS, "-m"], 2), ([*LAUNCHER, *OPTIONS, "--", sys.executable, "-m"], 1)],
    ids=["torchrun", "launcher"],
)
def test_a_run_survives_dying_ranks_to_the_same_weights(
    launch: list[str], deaths: int, unbroken: str, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    output.mkdir()
    done = subprocess.run(
        [*launch, "tests.support.elastic", str(output), str(deaths)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    died = sorted(path.name for path in output.glob("death-*"))
    assert died == ["death-0-0", "death-1-1"][:deaths]
    assert (output / "weights").read_text() == unbroken
