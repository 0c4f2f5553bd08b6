"""What nodes must have: this package, the same torch, storage that they reach, GPUs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import determined
from determined._version import __version__
from determined.errors import DeterminedError
from tests.cli.det import run_det
from tests.support import faults
from tests.support.clusters import SimulatedCluster, ray_start
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(300)]
at_length = pytest.mark.skipif(
    faults.factor() == 1, reason="takes half a minute: set DET_TEST_FAULTS=2"
)


@pytest.fixture
def lab(
    cluster: SimulatedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    monkeypatch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
    monkeypatch.setenv("DET_CLUSTER", cluster.address)
    monkeypatch.setenv("DET_CLUSTER_INSECURE", "1")
    made = Lab(tmp_path)
    monkeypatch.setenv("DET_HOME", str(made.home.path))
    yield made
    made.close()


@contextlib.contextmanager
def extra_node(cluster: SimulatedCluster, pool: str, **given: Any) -> Iterator[None]:
    """A node in a resource pool of its own."""
    node = cluster.add(resources={pool: 1}, **given)
    try:
        yield
    finally:
        cluster.remove(node)


def test_an_open_cluster_is_left_out_unless_accepted(
    lab: Lab, cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_CLUSTER_INSECURE", "0")
    experiment_id = lab.create("pass")
    listed = json.loads(run_det("slot", "list", "--json").stdout)
    assert listed["slots"] == []
    assert [waiting["reason"] for waiting in listed["waiting"]] == [
        "no node of the cluster can be used"
    ]
    assert len(listed["left_out"]) == len(cluster.nodes)  # other tests may have added some
    for line in listed["left_out"]:
        assert "is not used: anyone who can reach it can run code there." in line
        assert "RAY_AUTH_MODE=token" in line
        assert "DET_CLUSTER_INSECURE=1" in line
    lab.service.kill(experiment_id)


def test_versions_of_a_node_are_compared_with_those_of_the_experiment() -> None:
    from determined.platform.runs.launchers.ray.launcher import compare

    expects = {"determined-pytorch": "1.0", "torch": "2.5"}
    assert compare("node a", expects, expects) == []
    assert compare("node a", expects | {"torch": "2.4"}, expects) == [
        "node a has 2.4 of torch, the experiment was created with 2.5: results may differ."
    ]
    with pytest.raises(DeterminedError, match=r"node a has no version of torch, .*Install the"):
        compare("node a", {"determined-pytorch": "1.0"}, expects)
    with pytest.raises(DeterminedError, match="node a has 0.9 of determined-pytorch, the exper"):
        compare("node a", expects | {"determined-pytorch": "0.9"}, expects)


@at_length
def test_nodes_without_the_same_package_are_named_and_not_used(
    lab: Lab, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    older = _package(tmp_path / "older", "0.0.1")
    without = tmp_path / "without"
    (without / "determined").mkdir(parents=True)
    (without / "determined" / "__init__.py").touch()
    with (
        extra_node(cluster, "older", env_vars={"PYTHONPATH": str(older)}),
        extra_node(cluster, "without", env_vars={"PYTHONPATH": str(without)}),
    ):
        waiting = lab.create("pass", resources={"resource_pool": "older"})
        assert lab.wait(lab.create("pass")).state == "COMPLETED"
        listed = json.loads(run_det("slot", "list", "--json").stdout)
        assert [line.partition("is not used: ")[2] for line in sorted(listed["left_out"])] == [
            f"it has determined-pytorch 0.0.1, the supervisor {__version__}: install the same "
            "version there.",
            "its Python has no determined-pytorch: install the same version there.",
        ]
        assert "in resource pool 'older'" in listed["waiting"][0]["reason"]
        lab.service.kill(waiting)
        lab.wait(waiting)


def _package(folder: Path, version: str) -> Path:
    """This package under another version."""
    package = folder / "determined"
    package.mkdir(parents=True)
    for entry in Path(determined.__file__).parent.iterdir():
        if entry.name != "_version.py":
            (package / entry.name).symlink_to(entry)
    (package / "_version.py").write_text(f"__version__ = {version!r}\n")
    return folder


@at_length
def test_another_torch_is_named_before_the_first_trial(
    lab: Lab, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    (tmp_path / "other" / "torch-0.9.9.dist-info").mkdir(parents=True)
    variables = {"PYTHONPATH": str(tmp_path / "other")}
    with extra_node(cluster, "other", env_vars=variables):
        experiment_id = lab.create("print('first')", resources={"resource_pool": "other"})
        assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    (run,) = lab.runs(experiment_id)
    before, _, _ = lab.log(run).partition("first")
    assert "has 0.9.9 of torch, the experiment was created with 2." in before
    assert "results may differ" in before


@at_length
def test_a_shared_folder_that_a_node_does_not_see_is_told(
    lab: Lab, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    node = ray_start(
        *("--address", cluster.address, "--num-cpus", "1", "--resources", '{"blind": 1}'),
        *("--dashboard-agent-listen-port", "0"),
        log=tmp_path / "node.log",
        # Something else is mounted there for this node.
        before=("unshare", "-m", "sh", "-c", f'mount -t tmpfs none {shared} && exec "$@"', "sh"),
    )
    with node as process:
        if not cluster.wait_for("blind", process):
            pytest.skip("no mounts of one's own here")
        storage = {"type": "shared_fs", "host_path": str(shared)}
        experiment_id = lab.create(
            "print('ran')", resources={"resource_pool": "blind"}, checkpoint_storage=storage
        )
        assert lab.wait(experiment_id).state == "ERROR", lab.account()
    (trial,) = lab.trials(experiment_id)
    assert f"does not see the same folder {shared}" in trial.reason
    assert "checkpoint_storage: node " in trial.reason
    assert "ran" not in lab.log(lab.runs(experiment_id)[0])
    assert list(shared.iterdir()) == []


# Saves, fails, and goes on from what it has saved.
RESUMES = """
import determined as det
from determined import core
with core.init() as ctx:
    found = det.get_cluster_info().latest_checkpoint
    if found is None:
        with ctx.checkpoint.store_path({"steps_completed": 1}) as (path, _):
            (path / "state").write_text("saved on a node")
        ctx.train.report_validation_metrics(1, {"loss": 1.0})
        raise SystemExit(3)
    with ctx.checkpoint.restore_path(found) as path:
        print("found:", (path / "state").read_text(), flush=True)
    ctx.train.report_validation_metrics(2, {"loss": 0.5})
"""


@at_length
def test_trials_of_a_cluster_save_to_s3_and_resume_from_it(
    lab: Lab, s3_endpoint: str, s3_client: Any
) -> None:
    s3_client.create_bucket(Bucket="of-a-cluster")
    storage = {"type": "s3", "bucket": "of-a-cluster", "endpoint_url": s3_endpoint}
    secrets = ["AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret"]
    config: dict[str, Any] = {"environment": {"environment_variables": secrets}}
    wrong = lab.create("print('ran')", checkpoint_storage=storage | {"bucket": "none"}, **config)
    right = lab.create(RESUMES, checkpoint_storage=storage, max_restarts=1, **config)
    assert lab.wait(wrong).state == "ERROR"
    (trial,) = lab.trials(wrong)
    assert "checkpoint_storage: node " in trial.reason
    assert "none" in trial.reason
    assert "ran" not in lab.log(lab.runs(wrong)[0])
    assert lab.wait(right).state == "COMPLETED", lab.account()
    assert "found: saved on a node" in lab.log(lab.runs(right)[-1])
    (saved,) = lab.checkpoints(right)
    found = s3_client.list_objects_v2(Bucket="of-a-cluster")["Contents"]
    assert f"{saved.uuid}/state" in [entry["Key"] for entry in found]


@at_length
def test_gpus_of_a_node_are_slots_that_trials_are_told(lab: Lab, cluster: SimulatedCluster) -> None:
    """Ray is told of GPUs that are not there: which ones a trial may use is all that is tested."""
    (lab.home.path).mkdir(exist_ok=True)
    (lab.home.path / "platform.yaml").write_text("cluster: {type: ray, slot_type: gpu}\n")
    script = (
        "import os, determined as det\n"
        "info = det.get_cluster_info()\n"
        "print('has', os.environ['CUDA_VISIBLE_DEVICES'], info.gpu_uuids, len(info.slot_ids))\n"
        "while not os.path.exists('%s'): pass\n"
    ) % (lab.folder / "gate")
    with extra_node(cluster, "gpus", num_cpus=1, num_gpus=2):
        search = {"name": "random", "metric": "loss", "max_trials": 2}
        pair = lab.create(
            script,
            searcher=search,
            hyperparameters={"x": {"type": "double", "minval": 0, "maxval": 1}},
        )
        lab.until(lambda: sum("has" in lab.log(run) for run in lab.runs(pair)) == 2)
        listed = json.loads(run_det("slot", "list", "--json").stdout)
        assert [slot["device"] for slot in listed["slots"]] == ["GPU 0", "GPU 1"]
        assert {slot["experiment_id"] for slot in listed["slots"]} == {pair}
        (lab.folder / "gate").touch()
        assert lab.wait(pair).state == "COMPLETED"
        both = lab.create(script, resources={"slots_per_trial": 2})
        assert lab.wait(both).state == "COMPLETED"
        shared = lab.create(script, resources={"trials_per_slot": 2})
        assert lab.wait(shared).state == "COMPLETED"
    told = [lab.log(run).partition("has ")[2].strip() for run in lab.runs(pair)]
    assert sorted(told) == ["0 ['0'] 1", "1 ['1'] 1"]
    (told_both,) = (lab.log(run).partition("has ")[2].strip() for run in lab.runs(both))
    assert told_both == "0,1 ['0', '1'] 2"
    (told_shared,) = (lab.log(run).partition("has ")[2].strip() for run in lab.runs(shared))
    assert told_shared in ("0 ['0'] 1", "1 ['1'] 1")
