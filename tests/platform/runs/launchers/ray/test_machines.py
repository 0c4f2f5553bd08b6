"""Machines with networks of their own: what a cut cable and a dead head cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from determined._os import processes
from determined.platform.supervisor import presence
from tests.support import faults
from tests.support.cluster_lab import ClusterLab, chain, weights
from tests.support.lab import Lab
from tests.support.line_trial import LAUNCH, MODEL, TRAIN
from tests.support.networks import SeparateMachines, require_networks

pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(faults.factor() == 1, reason="takes minutes: set DET_TEST_FAULTS=2"),
]

WHOLE = list(enumerate(chain(12), start=1))


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeparateMachines]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]'")
    require_networks()
    folder: Path = tmp_path_factory.mktemp("machines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_NODE_DIR", str(folder))
        patch.setenv("DET_NODE_LEASE_SECONDS", "40")
        made = SeparateMachines(folder)
        try:
            made.start("a", num_cpus=2)
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def lab(
    machines: SeparateMachines, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterLab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        patch.setenv("DET_CLUSTER", machines.address)
        patch.setenv("DET_CLUSTER_INSECURE", "1")
        made = ClusterLab(tmp_path_factory.mktemp("lab"))
        yield made
        made.close()


def test_a_short_cut_is_not_noticed(lab: ClusterLab, machines: SeparateMachines) -> None:
    experiment_id = lab.chain("short")
    run = lab.until_halted(experiment_id)
    machines.cut("a")
    lab.gate("short").touch()
    (there,) = machines.disk("a").glob(f"*/*/runs/{run.allocation_id}/log")
    lab.until(lambda: "step 12\n" in there.read_text())  # nobody hears of it yet
    assert "step 7\n" not in lab.log(run)
    machines.mend("a")
    assert lab.wait(experiment_id).state == "COMPLETED"
    assert len(lab.runs(experiment_id)) == 1
    assert lab.losses(experiment_id) == WHOLE


def test_after_a_long_cut_only_the_second_run_counts(
    lab: ClusterLab, machines: SeparateMachines
) -> None:
    halted, racing = (lab.chain(name) for name in ("halted", "racing"))
    old = [lab.until_halted(experiment_id) for experiment_id in (halted, racing)]
    machines.start("b", num_cpus=2)
    machines.cut("a")
    for experiment_id in (halted, racing):
        lab.until(lambda e=experiment_id: "starts at 6" in lab.log(lab.runs(e)[-1]))  # type: ignore[misc]
    assert all(processes.with_variable("DET_ALLOCATION_ID", run.allocation_id) for run in old)

    lab.gate("racing").touch()  # both runs of it go on
    assert lab.wait(racing).state == "COMPLETED"
    machines.mend("a")
    for run in old:  # told at last that it was given up
        lab.until(lambda r=run: not processes.with_variable("DET_ALLOCATION_ID", r.allocation_id))  # type: ignore[misc]
    lab.gate("halted").touch()
    assert lab.wait(halted).state == "COMPLETED"
    for experiment_id, run in zip((halted, racing), old, strict=True):
        (trial,) = lab.trials(experiment_id)
        assert trial.restarts == 0
        assert len(lab.runs(experiment_id)) == 2
        assert lab.losses(experiment_id) == WHOLE
        assert "step 7\n" not in lab.log(run)
        saved = sorted(point.steps_completed for point in lab.checkpoints(experiment_id))
        assert saved == sorted(set(saved))


def test_a_machine_that_stays_cut_off_ends_its_runs_by_itself(
    lab: ClusterLab, machines: SeparateMachines
) -> None:
    for name in ("a", "b"):
        machines.start(name, num_cpus=2)
    experiment_id = lab.chain("lease")
    run = lab.until_halted(experiment_id)
    folders = {name: machines.disk(name).glob(f"*/*/runs/{run.allocation_id}") for name in "ab"}
    (name,) = (name for name, found in folders.items() if list(found))
    machines.cut(name)
    lab.until(lambda: not processes.with_variable("DET_ALLOCATION_ID", run.allocation_id))
    lab.gate("lease").touch()
    assert lab.wait(experiment_id).state == "COMPLETED"
    assert lab.losses(experiment_id) == WHOLE
    machines.mend(name)


def test_a_trial_over_two_networks_trains_to_the_weights_of_one(
    lab: ClusterLab, machines: SeparateMachines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        machines.start(name, num_cpus=2)
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

    monkeypatch.delenv("DET_CLUSTER")
    monkeypatch.setenv("DET_SLOTS", "3")
    one = Lab(tmp_path)
    try:
        together = one.create(MODEL, **config)
        assert one.wait(together).state == "COMPLETED", one.account()
        assert weights(lab, spread) == weights(one, together)
    finally:
        one.close()


def test_a_trial_goes_on_when_the_cluster_is_back_without_its_head(
    lab: ClusterLab, machines: SeparateMachines
) -> None:
    machines.start("a", num_cpus=2)
    experiment_id = lab.chain("head")
    old = lab.until_halted(experiment_id).allocation_id
    machines.kill("head")
    # Ray ends whoever waits too long for its head: the supervisor, and the nodes with their runs.
    deadline = time.monotonic() + 180
    while presence.find(lab.home) or processes.with_variable("DET_ALLOCATION_ID", old):
        assert time.monotonic() < deadline, lab.account()
        time.sleep(0.2)
    machines.start_head()
    machines.start("a", num_cpus=2)
    lab.gate("head").touch()
    assert lab.wait(experiment_id).state == "COMPLETED"
    (trial,) = lab.trials(experiment_id)
    assert trial.restarts == 0
    assert len(lab.runs(experiment_id)) == 2
    assert lab.losses(experiment_id) == WHOLE
