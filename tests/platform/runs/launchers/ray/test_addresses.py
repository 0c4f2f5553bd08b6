"""Ways to a cluster and back: kinds of addresses, one that does not answer, and this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.platform.machines.nodes import load_nodes
from determined.platform.machines.slots import free_ports
from determined.platform.supervisor import presence
from tests.cli.det import run_det
from tests.dashboard.served import served
from tests.support import faults
from tests.support.clusters import SimulatedCluster
from tests.support.forwarder import forward
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

# Reports before and after a halt.
HALTS = """
import os, pathlib, time
from determined import core
with core.init() as ctx:
    for step in (1, 2):
        ctx.train.report_validation_metrics(step, {"loss": step})
        print("step", step, flush=True)
        while not pathlib.Path("%s").exists():
            time.sleep(0.02)
"""


@pytest.fixture
def lab(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    monkeypatch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
    monkeypatch.setenv("DET_SLOTS", "1")
    monkeypatch.setenv("DET_CLUSTER_INSECURE", "1")
    made = Lab(tmp_path)
    monkeypatch.setenv("DET_HOME", str(made.home.path))
    yield made
    made.close()


@pytest.mark.parametrize("command", [("slot", "list"), ("supervisor", "start")])
def test_commands_name_a_bad_address_and_where_it_stands(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    home = {"DET_HOME": str(tmp_path)}
    answer = run_det(*command, environment={**home, "DET_CLUSTER": "head"})
    assert answer.stderr == (
        "det: DET_CLUSTER: expected auto, host:port or ray://host:port, or slurm, got 'head'.\n"
    )
    (tmp_path / "platform.yaml").write_text("cluster:\n  type: ray\n  address: head\n")
    answer = run_det(*command, environment=home)
    assert answer.returncode == 1
    assert answer.stderr == (
        f"det: {tmp_path}/platform.yaml:3: cluster.address: expected auto, host:port or "
        "ray://host:port, got 'head'.\n"
    )


@pytest.mark.timeout(300)
@pytest.mark.skipif(faults.factor() == 1, reason="takes a minute: set DET_TEST_FAULTS=2")
def test_a_run_goes_on_whatever_its_cluster_is_called(
    lab: Lab, cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through all kinds of addresses, and past a time on this machine with its own slots."""
    gate = lab.folder / "gate"
    monkeypatch.setenv("DET_CLUSTER", cluster.address)
    lasting = lab.create(HALTS % gate)
    lab.until(lambda: any("step 1\n" in lab.log(run) for run in lab.runs(lasting)))
    (run,) = lab.runs(lasting)

    monkeypatch.setenv("RAY_ADDRESS", cluster.address)  # others may run here
    _move_to(lab, "auto", monkeypatch)
    assert _slots_of(lab, lasting) == run.slots
    _move_to(lab, cluster.client_address, monkeypatch)
    assert _slots_of(lab, lasting) == run.slots
    with served(lab.home) as shown:
        found = shown.json("/api/queue")
        (used,) = (slot for slot in found["slots"] if slot["used_by"])
        assert (used["id"], used["used_by"]["experiment_id"]) == (run.slots[0], lasting)
        assert used["node"] == found["running"][0]["host"] != ""

    monkeypatch.delenv("DET_CLUSTER")
    presence.stop(lab.home)
    local = lab.create("import os; print('on', os.environ['DET_SLOT_IDS'])")
    assert lab.wait(local).state == "COMPLETED"
    assert "on [0]" in lab.log(lab.runs(local)[0])
    listed = run_det("slot", "list").stdout
    assert lab.home.supervisor_log.read_text().count("cannot be seen") <= 1
    assert "this machine" in listed
    assert f"Trial {lab.trials(lasting)[0].id} was started on node " in listed

    (lab.home.path / "platform.yaml").write_text(
        f"cluster:\n  type: ray\n  address: {cluster.address}\n  slot_type: cpu\n"
    )
    presence.stop(lab.home)
    gate.touch()
    assert lab.wait(lasting).state == "COMPLETED", lab.account()
    assert len(lab.runs(lasting)) == 1
    (trial,) = lab.trials(lasting)
    rows = lab.service.reader.metrics.reports(trial.id, "validation")
    assert [row.metrics["loss"] for row in rows] == [1, 2]


def _move_to(lab: Lab, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use another address from now on, and see that trials run there."""
    monkeypatch.setenv("DET_CLUSTER", address)
    refused = run_det("experiment", "create", *_written(lab))
    assert refused.returncode != 0
    assert f"now say the cluster {address}" in refused.stderr
    presence.stop(lab.home)
    experiment_id = lab.create("pass")
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    assert lab.runs(experiment_id)[0].slots[0] >= 1000
    table = load_nodes(lab.home.cluster)
    assert table is not None
    assert table.address == address


def _written(lab: Lab) -> tuple[str, str]:
    folder = lab.folder / "model"
    folder.mkdir(exist_ok=True)
    config = "name: n\nentrypoint: 'true'\nsearcher: {name: single, metric: loss}\n"
    (folder / "config.yaml").write_text(config)
    return str(folder / "config.yaml"), str(folder)


def _slots_of(lab: Lab, experiment_id: int) -> list[int]:
    """The slots that `det slot list` shows an experiment on."""
    shown = json.loads(run_det("slot", "list", "--json").stdout)
    return [s["slot_id"] for s in shown["slots"] if s["experiment_id"] == experiment_id]


def test_trials_wait_for_a_cluster_that_does_not_answer(
    lab: Lab, cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    address = f"ray://127.0.0.1:{port}"
    monkeypatch.setenv("DET_CLUSTER", address)
    experiment_id = lab.create("pass")
    listed = run_det("slot", "list").stdout
    assert f"Cannot connect to the Ray cluster {address}: Connection refused" in listed
    assert "To use this machine instead: unset DET_CLUSTER." in listed
    assert "no node of the cluster can be used" in listed
    other = lab.create("pass")
    lab.service.kill(other)
    assert lab.wait(other).state == "CANCELED"
    with forward(port, cluster.client_address.removeprefix("ray://")):
        assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
        assert "no way to" not in run_det("slot", "list").stdout
        presence.stop(lab.home)
