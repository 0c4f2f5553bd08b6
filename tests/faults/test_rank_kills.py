"""Two ranks, DDP and FSDP: any is killed or stopped anywhere, and the weights are the same."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import torch.distributed

from determined import pytorch
from determined.pytorch._ranks.ddp import validating
from determined.storage import SharedFSStorageManager, _crash_points
from tests.support import sharded
from tests.support.faults import draw_seed, factor
from tests.support.resumable import digest
from tests.support.workers import Outcome, collect_workers

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

LENGTH, PERIOD = 12, 2
BATCH = "batch"
POINTS = ("mid_write", "before_fsync", "before_manifest", "before_rename", "after_rename")


class Death(NamedTuple):
    """Who dies, and when: at a batch, or the n-th time that a place in the saver is reached."""

    ranks: tuple[int, ...]
    place: str
    at: int


class Mortal(sharded.ShardedTrial):
    """Dies or is stopped at a batch."""

    dies_at = stops_at = -1
    victim = 0
    reports = Path()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == self.dies_at:
            os.kill(self.victim or os.getpid(), signal.SIGKILL)
        if batch_idx == self.stops_at:
            words = [sys.executable, "-c", _WAKES_UP, str(self.reports), str(os.getpid())]
            with subprocess.Popen(words):
                os.kill(os.getpid(), signal.SIGSTOP)
        return super().train_batch(batch, epoch_idx, batch_idx)


# Resumes a process once a report says that it is stopped, or says that none came.
_WAKES_UP = """
import os, pathlib, signal, sys, time
deadline = time.monotonic() + 40
def is_told():
    reports = pathlib.Path(sys.argv[1]).glob("hang-reports/*/hang_*.txt")
    return any("is stopped" in report.read_text() for report in reports)
while not is_told() and time.monotonic() < deadline: time.sleep(0.02)
os.kill(int(sys.argv[2]), signal.SIGCONT)
"""


def _train(folder: Path, parallel: str, death: Death | None, stops_at: int = -1) -> str:
    os.chdir(folder)
    rank = int(os.environ["RANK"])
    Mortal.reports = folder / "storage"
    if stops_at >= 0 and rank == 1:
        Mortal.stops_at = stops_at
    if death is not None and rank in death.ranks:
        if death.place == BATCH:
            Mortal.dies_at = death.at
        else:
            _crash_points._armed, _crash_points._hits_left = death.place, death.at
    trial, _ = sharded.train(
        folder / "storage",
        LENGTH,
        checkpoint="latest",
        trial_class=Mortal,
        parallel=parallel,
        fit={"checkpoint_period": pytorch.Batch(PERIOD)},
    )
    with validating([trial.model]):  # with the chief's buffers, which are the ones that are saved
        return digest(trial.whole_state())


def _attempt(folder: Path, parallel: str, death: Death | None, **more: Any) -> list[Outcome]:
    folder.mkdir(exist_ok=True)
    return collect_workers(
        *(2, _train, folder, parallel, death, *more.values()),
        environment={"DET_COLLECTIVE_TIMEOUT": "60", "DET_HANG_TIMEOUT": "1"},
        deadline_seconds=90,
    )


def _finish(folder: Path, parallel: str) -> list[str]:
    """Train to the end; return each rank's digest."""
    outcomes = _attempt(folder, parallel, None)
    assert [outcome.exit_code for outcome in outcomes] == [0, 0], "\n".join(map(str, outcomes))
    return [outcome.value for outcome in outcomes]


Ending = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Ending:
    """Return what `_finish` returns for DDP or FSDP if nothing happens; each is run once."""
    return functools.cache(lambda parallel: _finish(tmp_path_factory.mktemp(parallel), parallel))


def _survive(folder: Path, parallel: str, deaths: list[Death]) -> list[str]:
    """Die as planned, then go on to the end; return the digests of all weights and states."""
    for death in deaths:
        outcomes = _attempt(folder, parallel, death)
        codes = [outcome.exit_code for outcome in outcomes]
        for rank in death.ranks:
            is_reached = codes[rank] == -signal.SIGKILL
            # Only the chief writes what is not of a single rank, and a run may be over before.
            assert is_reached or death.place != BATCH, (death, "\n".join(map(str, outcomes)))
        _check_storage(folder)
    return _finish(folder, parallel)


def _check_storage(folder: Path) -> None:
    """All that can be seen is whole."""
    storage = SharedFSStorageManager(folder / "storage")
    for checkpoint in storage.list("split"):
        assert storage.verify(checkpoint.storage_id)


PLANS = {
    "ddp": [Death((1,), BATCH, 3), Death((0,), "before_manifest", 1), Death((0, 1), BATCH, 9)],
    "fsdp": [Death((0,), BATCH, 3), Death((1,), "before_fsync", 2), Death((0, 1), BATCH, 9)],
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("parallel", PLANS)
def test_ranks_that_are_killed_end_like_those_of_an_unbroken_run(
    tmp_path: Path, parallel: str, unbroken: Ending
) -> None:
    assert _survive(tmp_path / "broken", parallel, PLANS[parallel]) == unbroken(parallel)
    hidden = [path.name for path in (tmp_path / "broken" / "storage").glob(".*tmp-*")]
    assert hidden == [], "half of a checkpoint is left"


@pytest.mark.skipif(factor() == 1, reason="random kills: long form only")
@pytest.mark.timeout(600 * factor())
@pytest.mark.parametrize("parallel", PLANS)
def test_ranks_that_are_killed_at_random_end_like_those_of_an_unbroken_run(
    tmp_path: Path, parallel: str, unbroken: Ending
) -> None:
    for case in range(factor()):
        draw = random.Random(draw_seed())
        deaths = []
        for batch in sorted(draw.sample(range(1, LENGTH), draw.randint(1, 4))):
            ranks = draw.choice([(0,), (1,), (0, 1)])
            at_save = draw.random() < 0.5
            place = draw.choice(POINTS) if at_save else BATCH
            deaths.append(Death(ranks, place, draw.randint(1, 3) if at_save else batch))
        assert _survive(tmp_path / f"case-{case}", parallel, deaths) == unbroken(parallel), deaths


@pytest.mark.timeout(200)
@pytest.mark.parametrize("parallel", PLANS)
def test_a_rank_that_is_stopped_is_named_and_goes_on_exactly(
    tmp_path: Path, parallel: str, unbroken: Ending
) -> None:
    outcomes = _attempt(tmp_path / "stopped", parallel, None, stops_at=5)
    assert [outcome.exit_code for outcome in outcomes] == [0, 0], "\n".join(map(str, outcomes))
    assert [outcome.value for outcome in outcomes] == unbroken(parallel)
    reports = (tmp_path / "stopped" / "storage").glob("hang-reports/*/hang_*.txt")
    text = "".join(report.read_text() for report in reports)
    assert "rank 1: " in text
    assert "is stopped" in text
    assert "rank 0 waits for other ranks" in text


# With the launcher.


def _launch(folder: Path, parallel: str, hash_seed: int, kills_at: int = -1) -> int:
    """Train with two new interpreters, each with a known hash seed: left alone, they draw it."""
    folder.mkdir(exist_ok=True)
    words = [sys.executable, "-m", "determined.launch.torch_distributed", "--nproc_per_node", "2"]
    words += ["--", "sh", "-c", f'PYTHONHASHSEED=$(({hash_seed} + RANK)) exec "$0" "$@"']
    words += [sys.executable, "-m", "tests.faults.test_rank_kills"]
    words += [str(folder), parallel, str(kills_at)]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    with (folder / "output").open("ab") as output:
        job = subprocess.Popen(words, env=environment, stdout=output, stderr=output, cwd=root)
    family: list[psutil.Process] = []
    while job.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            found = psutil.Process(job.pid).children(recursive=True)
            family = found if len(found) >= len(family) else family
        time.sleep(0.05)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == [], "ranks outlived their launcher"
    return job.returncode


@pytest.mark.timeout(300 * factor())
@pytest.mark.parametrize("parallel", PLANS)
def test_a_launcher_that_is_killed_leaves_no_rank_and_what_it_left_goes_on_exactly(
    tmp_path: Path, parallel: str, unbroken: Ending
) -> None:
    """New interpreters take seconds, so the short form goes on with forks."""
    for case in range(factor()):
        folder, seed = tmp_path / f"launched-{case}", 1 + 4 * case
        kills_at = (5 + 5 * case) % LENGTH  # each batch once in as many cases
        assert _launch(folder, parallel, seed, kills_at) == -signal.SIGKILL, _output(folder)
        _check_storage(folder)
        if factor() == 1:
            assert _finish(folder, parallel) == unbroken(parallel)
        else:
            assert _launch(folder, parallel, seed + 2) == 0, _output(folder)
            digests = [(folder / f"digest-{rank}").read_text() for rank in range(2)]
            assert digests == unbroken(parallel), _output(folder)
            print(f"killed at batch {kills_at}, hash seeds from {seed} on: exact")  # noqa: T201  # shown by -rP


def _output(folder: Path) -> str:
    return (folder / "output").read_text()


def main(folder: Path, parallel: str, kills_at: int) -> None:
    """One rank, of a launcher that the chief kills at a batch."""
    rank = int(os.environ["RANK"])
    if rank == 0 and kills_at >= 0:
        mark = "determined.launch.torch_distributed"
        launchers = [p.pid for p in psutil.Process().parents() if mark in p.cmdline()]
        Mortal.victim = launchers[-1]
        Mortal.dies_at = kills_at
    torch.distributed.init_process_group("gloo")  # outlives training: states are gathered after it
    (folder / f"digest-{rank}").write_text(_train(folder, parallel, None))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
