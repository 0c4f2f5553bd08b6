"""A trial keeps objects of its own classes in its state: paused and activated, it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(300)]

LENGTH = 12
MODEL = """
import time, pathlib
import torch
from determined import pytorch
from settings import AttrDict

class Decay(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer):
        self.hparams = AttrDict(gamma=0.9, seen=AttrDict(steps=0))
        super().__init__(optimizer)

    def get_lr(self):
        self.hparams.seen.steps += 1
        return [rate * self.hparams.gamma ** self.hparams.seen.steps for rate in self.base_lrs]

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(3, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.1))
        context.wrap_lr_scheduler(
            Decay(self.optimizer), pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH
        )

    def build_training_data_loader(self):
        return pytorch.DataLoader(torch.arange(24.0).reshape(8, 3), batch_size=2)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(torch.ones(2, 3), batch_size=2)

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch).pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        if batch_idx == 4:
            here = pathlib.Path(self.context.get_hparam("here"))
            (here / "is at five").touch()
            backend = self.context._core._backend
            while not (here / "go on").exists() and not backend.should_preempt():
                time.sleep(0.01)
        return {"train_loss": loss}

    def evaluate_batch(self, batch):
        return {"loss": self.model(batch).mean()}
"""
SETTINGS = """
class AttrDict(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
"""


def train(lab: Lab, folder: Path, is_paused: bool) -> torch.Tensor:
    folder.mkdir()
    experiment_id = lab.create(
        "",
        files={"model_def.py": MODEL, "settings.py": SETTINGS},
        entrypoint="model_def:Trial",
        searcher={"name": "single", "metric": "loss", "max_length": {"batches": LENGTH}},
        hyperparameters={"global_batch_size": 2, "here": str(folder)},
        reproducibility={"experiment_seed": 5},
        scheduling_unit=1,
    )
    lab.until((folder / "is at five").exists)
    if is_paused:
        lab.service.pause(experiment_id)
        lab.until(lambda: not lab.service.reader.unfinished_runs())
        assert lab.experiment(experiment_id).state == "PAUSED"
        lab.service.activate(experiment_id)
    (folder / "go on").touch()
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    runs = lab.runs(experiment_id)
    assert len(runs) == (2 if is_paused else 1)
    assert not any("trusted_classes" in lab.log(run) for run in runs)
    newest = max(lab.checkpoints(experiment_id), key=lambda c: c.steps_completed)
    assert newest.steps_completed == LENGTH
    file = lab.home.checkpoints / newest.uuid / "state_dict.pth"
    state = torch.load(file, weights_only=True)
    return torch.cat([w.flatten() for w in state["models_state_dict"][0].values()])


def test_a_paused_trial_goes_on_with_objects_of_its_own_classes(lab: Lab, tmp_path: Path) -> None:
    unbroken = train(lab, tmp_path / "unbroken", is_paused=False)
    paused = train(lab, tmp_path / "paused", is_paused=True)
    assert torch.equal(paused, unbroken)
    assert (lab.home.path / "checkpoint.key").stat().st_mode & 0o077 == 0
