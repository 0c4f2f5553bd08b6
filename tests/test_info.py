"""Cluster information: read from files or environment, absent without a platform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from determined import ClusterInfo, RendezvousInfo, ResourcesInfo, TrialInfo, get_cluster_info

CLUSTER = {
    "master_url": "http://127.0.0.1:8080",
    "cluster_id": "c",
    "agent_id": "a",
    "slot_ids": [0, 1],
    "task_id": "1.x",
    "allocation_id": "1.x.1",
    "session_token": "t",
    "task_type": "TRIAL",
    "latest_checkpoint": "u-u-i-d",
}
TRIAL = {
    "trial_id": 7,
    "experiment_id": 3,
    "trial_seed": 11,
    "hparams": {"lr": 0.1},
    "config": {"data": {"path": "/d"}},
    "steps_completed": 40,
    "trial_run_id": 2,
    "debug": False,
    "inter_node_network_interface": None,
}
RENDEZVOUS = {
    "container_addrs": ["10.0.0.1", "10.0.0.2"],
    "container_rank": 1,
    "container_slot_counts": [2, 2],
}


def write_info(directory: Path, **files: dict[str, Any]) -> None:
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))


def test_there_is_none_without_a_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DET_INFO_DIR", raising=False)
    assert get_cluster_info() is None


def test_absence_is_not_remembered_but_presence_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DET_INFO_DIR", str(tmp_path))
    assert get_cluster_info() is None
    write_info(tmp_path, cluster={**CLUSTER, "task_type": "COMMAND"})
    info = get_cluster_info()
    assert info is not None
    assert get_cluster_info() is info


def test_a_trial_knows_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DET_INFO_DIR", str(tmp_path))
    write_info(
        tmp_path,
        cluster=CLUSTER,
        trial=TRIAL,
        rendezvous=RENDEZVOUS,
        resources={"gpu_uuids": ["GPU-1"]},
    )
    info = get_cluster_info()
    assert info is not None
    assert (info.trial.trial_id, info.trial.hparams) == (7, {"lr": 0.1})
    assert info.latest_checkpoint == "u-u-i-d"
    assert info.user_data == {"path": "/d"}
    assert info.container_addrs == ["10.0.0.1", "10.0.0.2"]
    assert (info.container_rank, info.container_slot_counts) == (1, [2, 2])
    assert info.gpu_uuids == ["GPU-1"]


def test_a_task_that_is_no_trial_has_single_machine_answers() -> None:
    info = ClusterInfo(**{**CLUSTER, "task_type": "NOTEBOOK"})  # type: ignore[arg-type]  # as read from JSON
    assert info.latest_checkpoint is None
    assert info.user_data == {}
    assert info.container_addrs == ["127.0.0.1"]
    assert (info.container_rank, info.container_slot_counts) == (0, [2])
    with pytest.raises(RuntimeError, match="NOTEBOOK"):
        _ = info.trial


def test_damaged_files_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DET_INFO_DIR", str(tmp_path))
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(RuntimeError, match="cluster.json is not JSON"):
        get_cluster_info()
    (tmp_path / "cluster.json").write_text("[]")
    with pytest.raises(RuntimeError, match=r"cluster.json must contain a JSON object, got list"):
        get_cluster_info()


def test_environment_gives_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "DET_MASTER": "http://127.0.0.1:8080",
        "DET_CLUSTER_ID": "c",
        "DET_AGENT_ID": "a",
        "DET_SLOT_IDS": "[0]",
        "DET_TASK_ID": "1.x",
        "DET_ALLOCATION_ID": "1.x.1",
        "DET_SESSION_TOKEN": "t",
        "DET_TASK_TYPE": "TRIAL",
        "DET_TRIAL_ID": "7",
        "DET_EXPERIMENT_ID": "3",
        "DET_TRIAL_SEED": "11",
        "DET_HPARAMS": '{"lr": 0.1}',
        "DET_EXPERIMENT_CONFIG": '{"debug": true}',
        "DET_STEPS_COMPLETED": "40",
        "DET_TRIAL_RUN_ID": "2",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    info = ClusterInfo._from_env()
    assert (info.slot_ids, info.trial.trial_seed, info.trial._debug) == ([0], 11, True)
    monkeypatch.delenv("DET_AGENT_ID")
    with pytest.raises(RuntimeError, match="DET_AGENT_ID"):
        ClusterInfo._from_env()


def test_parts_are_built_by_keyword() -> None:
    assert TrialInfo(**TRIAL).experiment_id == 3  # type: ignore[arg-type]  # as read from JSON
    assert RendezvousInfo(["h"], 0, [1]).container_addrs == ["h"]
    assert ResourcesInfo(gpu_uuids=[]).gpu_uuids == []
