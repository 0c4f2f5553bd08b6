"""`det checkpoint describe` and `download`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.det import told_by
from tests.cli.scripts import STEPS
from tests.support.lab import Lab
from tests.support.messages import documented

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


def test_a_checkpoint_is_described_and_downloaded(lab: Lab, tmp_path: Path) -> None:
    lab.wait(lab.create(STEPS))
    (found,) = [c for c in lab.checkpoints(1) if c.steps_completed == 20]
    assert found.uuid in told_by("c", "describe", found.uuid)
    data = json.loads(told_by("c", "describe", found.uuid, "--json"))
    assert data["steps_completed"] == 20
    target = tmp_path / "mine"
    assert told_by("c", "download", found.uuid, "-q", "-o", str(target)) == f"{target}\n"
    assert (target / "state").read_text() == "20"
    assert f"Local checkpoint path:\n{target}\n" in told_by(
        "checkpoint", "download", found.uuid, "-o", str(target)
    )
    documented("a checkpoint is not there", told_by("c", "describe", "no-such-uuid", code=1))


_FROZEN = """
import torch
from determined import pytorch

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        layers = torch.nn.Linear(256, 256).requires_grad_(False), torch.nn.Linear(256, 1)
        self.model = context.wrap_model(torch.nn.Sequential(*layers))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(layers[1].parameters(), 0.1))

    def build_training_data_loader(self):
        return pytorch.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 256)), 2)

    def build_validation_data_loader(self):
        return None

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = (self.model(batch[0]) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

with pytorch.init() as context:
    pytorch.Trainer(Trial(context), context).fit(
        max_length=pytorch.Batch(8), checkpoint_period=pytorch.Batch(2), latest_checkpoint="latest"
    )
"""


def test_shared_weights_take_room_once_and_a_download_may_join_them(
    lab: Lab, tmp_path: Path
) -> None:
    storage: dict[str, Any] = {"type": "shared_fs", "host_path": str(lab.home.checkpoints)}
    storage |= {"save_frozen": "once", "save_trial_latest": 4}
    assert lab.wait(lab.create(_FROZEN, checkpoint_storage=storage)).state == "COMPLETED"
    *_, newest = sorted(lab.checkpoints(1), key=lambda c: c.steps_completed)
    sizes = {part["what"]: part["bytes"] for part in json.loads(told_by("store", "df", "--json"))}
    assert newest.size > 256 * 256 * 4
    for part in ("checkpoints", "experiment 1"):
        assert newest.size < sizes[part] < 1.5 * newest.size + 100_000, sizes
    plain, joined = tmp_path / "plain", tmp_path / "joined"
    told_by("checkpoint", "download", newest.uuid, "-q", "-o", str(plain))
    told_by("checkpoint", "download", newest.uuid, "-q", "--joined", "-o", str(joined))
    assert (plain / "frozen").is_dir()
    assert not (joined / "frozen").exists()
    (weights,) = torch.load(joined / "state_dict.pth", weights_only=True)["models_state_dict"]
    assert {name: tuple(w.shape) for name, w in weights.items()} == {
        **{"0.weight": (256, 256), "0.bias": (256,)},
        **{"1.weight": (1, 256), "1.bias": (1,)},
    }


def test_a_download_that_was_cut_short_is_completed(lab: Lab, tmp_path: Path) -> None:
    lab.wait(lab.create(STEPS))
    (found,) = [c for c in lab.checkpoints(1) if c.steps_completed == 20]
    target = tmp_path / "mine"
    told_by("c", "download", found.uuid, "-q", "-o", str(target))
    (target / "state").write_text("2")  # one byte of two
    told_by("c", "download", found.uuid, "-q", "-o", str(target))
    assert (target / "state").read_text() == "20"
    assert (target / "metadata.json").exists()


def test_a_damaged_or_deleted_checkpoint_is_refused(lab: Lab, tmp_path: Path) -> None:
    lab.wait(lab.create(STEPS))
    kept = next(c for c in lab.checkpoints(1) if c.steps_completed == 20)
    (lab.home.checkpoints / kept.uuid / "state").unlink()
    target = tmp_path / "mine"
    told = told_by("c", "download", kept.uuid, "-o", str(target), code=1)
    assert "state" in told
    assert not target.exists()
    lab.until(lambda: {c.state for c in lab.checkpoints(1)} == {"COMPLETED", "DELETED"})
    gone = next(c for c in lab.checkpoints(1) if c.steps_completed == 10)
    told = told_by("c", "download", gone.uuid, "-o", str(target), code=1)
    documented("a checkpoint that was deleted is downloaded", told, gone.uuid)
