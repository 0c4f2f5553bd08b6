"""Experiments on a cluster of three nodes: where trials run, what faults cost, who goes first."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from determined._os import processes
from determined.platform.machines.nodes import load_nodes
from determined.platform.queries.queue import read_queue
from determined.store import Run
from tests.support import faults
from tests.support.cluster_lab import ClusterLab, chain, let_one_go_on, outcomes, weights
from tests.support.clusters import SimulatedCluster
from tests.support.lab import Lab
from tests.support.line_trial import LAUNCH, MODEL, TRAIN
from tests.support.searches import check_replay

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_one_slot_trials_fill_the_cluster(lab: ClusterLab) -> None:
    marks, gate = lab.folder / "marks", lab.folder / "open"
    marks.mkdir()
    script = (
        "import os, time, pathlib, helper\n"
        "words = [os.environ['DET_AGENT_ID'], os.environ['HOOKED'], os.environ['GIVEN'],\n"
        "         os.path.basename(os.getcwd()), helper.WORD]\n"
        f"mark = pathlib.Path({str(marks)!r}, os.environ['DET_TRIAL_ID'])\n"
        "mark.write_text(' '.join(words[1:]))\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.02)\n"
    )
    experiment_id = lab.create(
        script,
        files={"helper.py": "WORD = 'code'", "startup-hook.sh": "export HOOKED=hooked\n"},
        environment={"environment_variables": ["GIVEN=secret"]},
        searcher={"name": "random", "metric": "loss", "max_trials": 7},
        hyperparameters={"x": {"type": "double", "minval": 0, "maxval": 1}},
    )
    lab.until(lambda: len(list(marks.iterdir())) == 6)
    queue = read_queue(lab.home, lab.service.reader, has_supervisor=True)
    assert [len(queue.runs[slot.id]) for slot in queue.slots] == [1] * 6
    assert [node.num_slots for node in queue.nodes] == [2, 2, 2]
    assert [waiting.reason for waiting in queue.waiting] == ["needs 1 slot, none free"]
    gate.touch()
    assert lab.wait(experiment_id).state == "COMPLETED"
    words = {path.read_text() for path in marks.iterdir()}
    assert words == {"hooked secret workdir code"}


def test_a_supervisor_and_an_agent_die_and_the_run_goes_on(lab: ClusterLab) -> None:
    experiment_id = lab.chain("deaths")
    run = lab.until_halted(experiment_id)
    lab.kill_supervisor()
    _kill_agents()
    lab.gate("deaths").touch()
    assert lab.wait(experiment_id).state == "COMPLETED"
    assert len(lab.runs(experiment_id)) == 1
    assert lab.losses(experiment_id) == list(enumerate(chain(12), start=1))
    steps = "".join(f"step {n}\n" for n in range(1, 13))
    assert lab.log(run).partition("starts at 0\n")[2] == steps


def test_a_lost_node_costs_no_restart_no_row_and_no_bit(
    lab: ClusterLab, cluster: SimulatedCluster
) -> None:
    experiment_id = lab.chain("node", max_restarts=0)
    run = lab.until_halted(experiment_id)
    cluster.replace(lab.node_of(run))
    # Its raylet is gone, its machine is not: what ran there ends by itself.
    lab.until(lambda: not processes.with_variable("DET_ALLOCATION_ID", run.allocation_id))
    lab.gate("node").touch()
    assert lab.wait(experiment_id).state == "COMPLETED"
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 0
    assert len(lab.runs(experiment_id)) in (2, 3)  # one may be meant for a node that is dying
    assert lab.losses(experiment_id) == list(enumerate(chain(12), start=1))
    assert "starts at 6" in lab.log(lab.runs(experiment_id)[-1])


def test_a_drained_node_hands_its_trials_over(lab: ClusterLab, cluster: SimulatedCluster) -> None:
    experiment_id = lab.chain("drained", max_restarts=0)
    node = lab.node_of(lab.until_halted(experiment_id))
    cluster.drain(node)
    lab.until(lambda: len(lab.runs(experiment_id)) == 2)
    first, second = lab.runs(experiment_id)
    assert first.preempted == "its node is being drained"
    queue = read_queue(lab.home, lab.service.reader, has_supervisor=True)
    assert [line for line in queue.skipped if "it is being drained" in line]
    lab.gate("drained").touch()
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    assert lab.node_of(second) != node
    assert lab.losses(experiment_id) == list(enumerate(chain(12), start=1))
    cluster.replace(node)


def test_runs_of_a_node_that_cannot_reach_the_head_end_with_its_lease(
    lab: ClusterLab, cluster: SimulatedCluster
) -> None:
    node = cluster.add(env_vars={"DET_NODE_LEASE_SECONDS": "4"}, labels={"pool": "leased"})
    experiment_id = lab.chain("lease", resources={"resource_pool": "leased"}, max_restarts=0)
    run = lab.until_halted(experiment_id)
    with cluster.without_head():
        lab.until(lambda: not processes.with_variable("DET_ALLOCATION_ID", run.allocation_id))
    lab.gate("lease").touch()
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    assert len(lab.runs(experiment_id)) == 2
    assert "this node was cut off from its cluster for 4 s: stopping" in lab.log(run)
    assert lab.losses(experiment_id) == list(enumerate(chain(12), start=1))
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 0
    cluster.kill(node)


def test_a_more_urgent_experiment_pauses_another_on_the_cluster(lab: ClusterLab) -> None:
    lasting = lab.chain(
        "lasting",
        searcher={"name": "random", "metric": "loss", "max_trials": 6},
        hyperparameters={"x": {"type": "double", "minval": 0, "maxval": 1}},
    )
    lab.until(lambda: sum("step 6\n" in lab.log(run) for run in lab.runs(lasting)) == 6)
    urgent = lab.chain("urgent", until_gate=99, resources={"priority": 1})
    assert lab.wait(urgent).state == "COMPLETED"
    lab.gate("lasting").touch()
    assert lab.wait(lasting).state == "COMPLETED"
    assert sum(bool(run.preempted) for run in lab.runs(lasting)) == 1
    assert len(lab.runs(lasting)) == 7
    for trial in lab.trials(lasting):
        rows = lab.service.reader.metrics.reports(trial.id, "validation")
        assert [row.metrics["loss"] for row in rows] == chain(12, trial.hparams["x"])
        assert trial.restarts == 0


@pytest.mark.parametrize("pool", ["special", "big"])
def test_a_resource_pool_is_a_label_or_a_resource_of_nodes(
    lab: ClusterLab, cluster: SimulatedCluster, pool: str
) -> None:
    lab.wait(lab.create("pass"))  # so that a supervisor has seen which nodes there are
    table = load_nodes(lab.home.cluster)
    assert table is not None
    if not any(pool in node.pools for node in table.nodes):  # it was the one that died
        cluster.nodes.append(cluster.add(resources={"big": 1}, labels={"pool": "special"}))
    experiment_id = lab.create("pass", resources={"resource_pool": pool})
    nowhere = lab.create("pass", resources={"resource_pool": "nowhere"})
    assert lab.wait(experiment_id).state == "COMPLETED"
    (run,) = lab.runs(experiment_id)
    table = load_nodes(lab.home.cluster)
    assert table is not None
    (node,) = (node for node in table.nodes if node.id == lab.node_of(run))
    assert pool in node.pools
    queue = read_queue(lab.home, lab.service.reader, has_supervisor=True)
    (waiting,) = queue.waiting
    assert waiting.reason == "needs 1 slot, but there are 0 in resource pool 'nowhere'"
    lab.service.kill(nowhere)
    lab.wait(nowhere)


def test_storage_that_a_node_cannot_reach_is_told_before_the_first_trial(lab: ClusterLab) -> None:
    storage = {"type": "s3", "bucket": "none", "endpoint_url": "http://127.0.0.1:9"}
    environment = {
        "environment_variables": [
            "AWS_ACCESS_KEY_ID=k",
            "AWS_SECRET_ACCESS_KEY=s",
            "AWS_MAX_ATTEMPTS=1",
        ]
    }
    experiment_id = lab.create("pass", checkpoint_storage=storage, environment=environment)
    assert lab.wait(experiment_id).state == "ERROR"
    (trial,) = lab.trials(experiment_id)
    assert "checkpoint_storage: node " in trial.reason
    assert "127.0.0.1:9" in trial.reason


def test_a_trial_over_several_nodes_trains_to_the_weights_of_one(
    lab: ClusterLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: dict[str, Any] = {
        "files": {"train.py": TRAIN},
        "entrypoint": f"{LAUNCH} python3 train.py",
        "resources": {"slots_per_trial": 3},
        "hyperparameters": {"global_batch_size": 6, "lr": 0.1},
        "reproducibility": {"experiment_seed": 7},
    }
    spread = lab.create(MODEL, **config)
    assert lab.wait(spread).state == "COMPLETED", lab.account()
    (run,) = lab.runs(spread)
    assert len(list(Path(run.folder, "nodes").iterdir())) == 2
    assert lab.log(run).count("ranks 3") == 3

    monkeypatch.delenv("DET_CLUSTER")
    monkeypatch.setenv("DET_SLOTS", "3")
    one = Lab(tmp_path)
    try:
        together = one.create(MODEL, **config)
        assert one.wait(together).state == "COMPLETED", one.account()
        assert weights(lab, spread) == weights(one, together)
    finally:
        one.close()


@pytest.mark.timeout(600)
@pytest.mark.skipif(faults.factor() == 1, reason="takes minutes: set DET_TEST_FAULTS=2")
def test_a_search_with_two_lost_nodes_ends_like_on_one_machine(
    lab: ClusterLab, cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: dict[str, Any] = {
        "hyperparameters": {"x": {"type": "double", "minval": 0, "maxval": 1}},
        "searcher": {
            **{"name": "adaptive_asha", "metric": "loss", "max_trials": 12, "max_time": 9},
            **{"time_metric": "epochs", "divisor": 3, "max_concurrent_trials": 3},
            "bracket_rungs": [3],
        },
        "reproducibility": {"experiment_seed": 7},
        "max_restarts": 0,
    }
    lab.gate("search").touch()
    there = lab.chain("search", length=9, until_gate=0, **config)
    for count in (8, 20):
        lab.until(lambda n=count: let_one_go_on(lab, there) >= n and _living(lab, there))  # type: ignore[misc]
        cluster.replace(lab.node_of(_living(lab, there)[0]))
    lab.until(lambda: let_one_go_on(lab, there) and lab.experiment(there).state == "COMPLETED")
    check_replay(lab, there)
    assert len(lab.runs(there)) > 12  # some began again

    monkeypatch.delenv("DET_CLUSTER")
    monkeypatch.setenv("DET_SLOTS", "3")
    one = ClusterLab(tmp_path)
    try:
        one.gate("search").touch()
        here = one.chain("search", length=9, until_gate=0, **config)
        one.until(lambda: let_one_go_on(one, here) and one.experiment(here).state == "COMPLETED")
        assert outcomes(lab, there) == outcomes(one, here)
    finally:
        one.close()


def _living(lab: ClusterLab, experiment_id: int) -> list[Run]:
    return [run for run in lab.runs(experiment_id) if run.started and not run.ended]


def _kill_agents() -> None:
    """Kill the processes of all agents, as Ray does when memory runs out."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[0].startswith("ray::Agent"):
                os.kill(process.pid, signal.SIGKILL)
