from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRIAL = """
import torch
from determined import pytorch

class Outer:
    class Trial(pytorch.PyTorchTrial):
        def __init__(self, context):
            self.context = context
            self.model = context.wrap_model(torch.nn.Linear(1, 1))
            self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), 0.1))

        def build_training_data_loader(self):
            return pytorch.DataLoader(
                torch.utils.data.TensorDataset(torch.ones(40, 1)),
                batch_size=self.context.get_per_slot_batch_size(),
            )

        build_validation_data_loader = build_training_data_loader

        def train_batch(self, batch, epoch_idx, batch_idx):
            loss = self.model(batch[0]).square().mean()
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            print("trained", batch_idx, len(batch[0]), self.context.get_hparam("color"))
            return {"loss": loss}

        def evaluate_batch(self, batch):
            print("evaluated")
            return {"loss": self.model(batch[0]).square().mean()}
"""

CONFIG: dict[str, Any] = {
    "entrypoint": "model:Outer.Trial",
    "searcher": {
        "name": "single",
        "metric": "loss",
        "smaller_is_better": True,
        "max_length": {"records": 24},
    },
    "min_validation_period": {"batches": 2},
    "min_checkpoint_period": {"batches": 0},
}


def _describe_task(directory: Path, config: dict[str, Any], num_slots: int) -> None:
    files = {
        "cluster": {
            "master_url": "http://127.0.0.1:1",
            "cluster_id": "c",
            "agent_id": "a",
            "slot_ids": list(range(num_slots)),
            "task_id": "t",
            "allocation_id": "t.1",
            "session_token": "token",
            "task_type": "TRIAL",
        },
        "trial": {
            "trial_id": 1,
            "experiment_id": 1,
            "trial_seed": 5,
            "hparams": {"global_batch_size": 8, "color": "red"},
            "config": config,
            "steps_completed": 0,
            "trial_run_id": 1,
            "debug": False,
            "inter_node_network_interface": None,
        },
        "rendezvous": {
            "container_addrs": ["127.0.0.1"],
            "container_rank": 0,
            "container_slot_counts": [num_slots],
        },
        "resources": {"gpu_uuids": []},
    }
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))


def _run(tmp_path: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    (tmp_path / "model.py").write_text(TRIAL)
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=tmp_path,
        env={**os.environ, "DET_INFO_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=90,
    )


def test_without_a_task_it_says_what_to_do(tmp_path: Path) -> None:
    done = _run(tmp_path, ["determined.exec.harness", "model:Outer.Trial"])
    assert done.returncode == 1
    assert "Write a script" in done.stderr


@pytest.mark.multiprocess
@pytest.mark.slow
@pytest.mark.parametrize("num_slots", [0, 2])
def test_a_trial_class_is_trained_as_configured(tmp_path: Path, num_slots: int) -> None:
    _describe_task(tmp_path, CONFIG, num_slots)
    command = ["determined.launch.torch_distributed", "--trial", "model:Outer.Trial"]
    done = _run(tmp_path, command)
    assert done.returncode == 0, done.stderr
    ranks = max(num_slots, 1)
    assert done.stdout.count("trained ") == 3 * ranks  # 24 records in batches of 8
    for rank in range(ranks):
        assert f"[rank={rank}] trained 2 {8 // ranks} red" in done.stdout
    assert "evaluated" in done.stdout
    assert "FutureWarning" in done.stderr
