"""Files of a task, as a platform leaves them for a process that it starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_CLUSTER = {
    "master_url": "",
    "cluster_id": "c",
    "agent_id": "a",
    "slot_ids": [0],
    "task_id": "t",
    "allocation_id": "t.1",
    "session_token": "",
    "task_type": "TRIAL",
}
_TRIAL = {
    "trial_id": 7,
    "experiment_id": 3,
    "trial_seed": 11,
    "hparams": {},
    "steps_completed": 0,
    "trial_run_id": 1,
    "debug": False,
    "inter_node_network_interface": None,
}
_RENDEZVOUS = {"container_addrs": ["127.0.0.1"], "container_rank": 0, "container_slot_counts": [1]}


def become_a_task(
    directory: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], **changes: Any
) -> None:
    """Let this process find the files of a trial with this configuration."""
    directory.mkdir()
    (directory / "cluster.json").write_text(json.dumps({**_CLUSTER, **changes}))
    (directory / "trial.json").write_text(json.dumps({**_TRIAL, "config": config}))
    (directory / "rendezvous.json").write_text(json.dumps(_RENDEZVOUS))
    monkeypatch.setenv("DET_INFO_DIR", str(directory))
