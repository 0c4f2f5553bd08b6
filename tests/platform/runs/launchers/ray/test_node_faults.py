"""Nodes that run out of disk or memory, leave and come back."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined.platform.queries.queue import read_queue
from tests.support import faults
from tests.support.cluster_lab import ClusterLab, chain
from tests.support.clusters import SimulatedCluster

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(faults.factor() == 1, reason="takes a minute: set DET_TEST_FAULTS=2"),
]
MEGABYTE = 1 << 20


@pytest.fixture
def small_disk() -> Iterator[Path]:
    at = Path(os.environ["DET_NODE_DIR"], "small")
    at.parent.mkdir(mode=0o700, exist_ok=True)
    with faults.mounted("-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", at=at):
        yield at


def test_a_full_disk_ends_the_run_there_and_no_other(
    lab: ClusterLab, cluster: SimulatedCluster, small_disk: Path
) -> None:
    beside = lab.chain("beside")
    lab.until_halted(beside)
    node = cluster.add(
        num_cpus=1, env_vars={"DET_NODE_DIR": str(small_disk)}, labels={"pool": "small"}
    )
    small = {"resource_pool": "small"}
    filling = lab.create("while True: print('x' * 1000)", resources=small)
    assert lab.wait(filling).state == "ERROR"
    (trial,) = lab.trials(filling)
    assert "failed with status 1: There is no room left on the disk of" in trial.reason
    (run,) = lab.runs(filling)
    assert lab.log(run).count("x" * 1000 + "\n") > 1000  # all that it wrote came home
    lab.until(lambda: not list(small_disk.glob("*/*/runs/*")))

    litter = small_disk / "litter"
    litter.write_bytes(bytes(_free(small_disk) - MEGABYTE // 2))
    waiting = lab.create("print('has room')", resources=small)

    def left_out() -> str:
        return " ".join(read_queue(lab.home, lab.service.reader, has_supervisor=True).skipped)

    lab.until(lambda: "no room left" in left_out())
    assert str(small_disk) in left_out()
    litter.unlink()
    assert lab.wait(waiting).state == "COMPLETED"
    (trial,) = lab.trials(waiting)
    assert trial.restarts == 0

    lab.gate("beside").touch()
    assert lab.wait(beside).state == "COMPLETED"
    assert len(lab.runs(beside)) == 1
    assert lab.losses(beside) == list(enumerate(chain(12), start=1))
    cluster.kill(node)


def test_an_agent_that_ray_kills_for_memory_again_and_again_loses_nothing(
    lab: ClusterLab, cluster: SimulatedCluster
) -> None:
    limits = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "4000"}
    node = cluster.add(num_cpus=1, env_vars=limits, labels={"pool": "squeezed"})
    experiment_id = lab.chain("squeezed", resources={"resource_pool": "squeezed"})
    lab.until_halted(experiment_id)
    seen: set[int] = set()

    def has_died_twice() -> bool:
        seen.update(_agents_on(node))
        return len(seen) > 2

    lab.until(has_died_twice)
    lab.gate("squeezed").touch()
    assert lab.wait(experiment_id).state == "COMPLETED"
    assert len(lab.runs(experiment_id)) == 1
    assert lab.losses(experiment_id) == list(enumerate(chain(12), start=1))
    cluster.remove(node)


def test_a_search_follows_a_cluster_that_grows_shrinks_and_returns(
    lab: ClusterLab, cluster: SimulatedCluster
) -> None:
    experiment_id = lab.chain(
        "tide",
        resources={"resource_pool": "tide"},
        searcher={"name": "random", "metric": "loss", "max_trials": 4},
        hyperparameters={"x": {"type": "double", "minval": 0, "maxval": 1}},
    )

    def waiting() -> list[str]:
        queue = read_queue(lab.home, lab.service.reader, has_supervisor=True)
        return [item.reason for item in queue.waiting if item.experiment.id == experiment_id]

    def halted() -> int:
        runs = [run for run in lab.runs(experiment_id) if run.ended is None]
        return sum("step 6\n" in lab.log(r) or "starts at 6\n" in lab.log(r) for r in runs)

    nowhere = "needs 1 slot, but there are 0 in resource pool 'tide'"
    lab.until(lambda: waiting() == [nowhere] * 4)
    first = cluster.add(num_cpus=1, labels={"pool": "tide"})
    lab.until(lambda: halted() == 1)
    assert waiting() == ["needs 1 slot, none free in resource pool 'tide'"] * 3
    second = cluster.add(num_cpus=3, labels={"pool": "tide"})
    lab.until(lambda: halted() == 4)
    cluster.remove(second)
    lab.until(lambda: halted() == 1 and len(waiting()) == 3)
    cluster.remove(first)
    lab.until(lambda: waiting() == [nowhere] * 4)
    third = cluster.add(num_cpus=4, labels={"pool": "tide"})
    lab.until(lambda: halted() == 4)
    lab.gate("tide").touch()
    assert lab.wait(experiment_id).state == "COMPLETED"
    for trial in lab.trials(experiment_id):
        rows = lab.service.reader.metrics.reports(trial.id, "validation")
        assert [row.metrics["loss"] for row in rows] == chain(12, trial.hparams["x"])
        assert trial.restarts == 0
    cluster.remove(third)


def _agents_on(node: Any) -> Iterator[int]:
    """The processes of agents of a node."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    for process in raylet.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "".join(process.cmdline()[:1]).startswith("ray::Agent"):  # zombies have none
                yield process.pid


def _free(disk: Path) -> int:
    return shutil.disk_usage(disk).free
