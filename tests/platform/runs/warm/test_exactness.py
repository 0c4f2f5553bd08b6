"""Trials end with the same weights, warm and cold, also after crashes, pauses and on two slots."""

from __future__ import annotations

import re

import pytest

from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(900)]

_MODEL = """
import hashlib, os, signal, sys, time
IS_WARM = "torch" in sys.modules
import torch
from determined import pytorch

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        x = torch.randn(8, generator=torch.Generator().manual_seed(index)) + torch.randn(8) / 99
        return x, x.sum().reshape(1)

class Report(pytorch.PyTorchCallback):
    def __init__(self, trial):
        self.trial = trial

    def on_trial_shutdown(self):
        content = b"".join(p.detach().numpy().tobytes() for p in self.trial.model.parameters())
        print("WEIGHTS", hashlib.sha256(content).hexdigest(), IS_WARM)

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        net = torch.nn.Sequential(
            torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(64, 1)
        )
        self.model = context.wrap_model(net)
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(net.parameters()))

    def build_callbacks(self):
        return {"report": Report(self)}

    def build_training_data_loader(self):
        return pytorch.DataLoader(Data(), batch_size=4, shuffle=True, num_workers=2)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(Data(), batch_size=4)

    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx == 12 and os.environ["DET_TRIAL_RUN_ID"] == "1" and "CRASH" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        if batch_idx == 12 and os.environ["DET_TRIAL_RUN_ID"] == "1" and "PAUSE" in os.environ:
            print("WAITING", flush=True)
            while not self.context._core.preempt.should_preempt():
                time.sleep(0.01)
        loss = torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"loss": torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])}
"""
_SCRIPT = """
from model import Trial, pytorch
with pytorch.init() as context:
    pytorch.Trainer(Trial(context), context).fit(
        max_length=pytorch.Batch(20), checkpoint_period=pytorch.Batch(5)
    )
"""


def train(lab: Lab, *, warm: bool, breaks: str = "CALM", slots: int = 1, entrypoint: str) -> str:
    """Train to the end; return the weights' digest, or fail unless all processes were as wanted."""
    experiment = lab.create(
        _SCRIPT,
        files={"model.py": _MODEL},
        entrypoint=entrypoint,
        searcher={"name": "single", "metric": "loss", "max_length": {"batches": 20}},
        hyperparameters={"global_batch_size": 4 * slots},
        min_checkpoint_period={"batches": 5},
        resources={"slots_per_trial": slots},
        reproducibility={"experiment_seed": 7},
        max_restarts=1,
        environment={"warm_start": warm, "environment_variables": [f"{breaks}=1"]},
    )
    if breaks == "PAUSE":
        lab.until(lambda: any("WAITING" in lab.log(run) for run in lab.runs(experiment)))
        lab.service.pause(experiment)
        lab.until(lambda: lab.runs(experiment)[0].ended is not None)
        lab.service.activate(experiment)
    assert lab.wait(experiment).state == "COMPLETED", lab.account()
    runs = lab.runs(experiment)
    assert len(runs) == (1 if breaks == "CALM" else 2)
    text = lab.log(runs[-1])
    found = re.findall(r"WEIGHTS (\w+) (\w+)", text)
    assert len(found) == slots
    assert {is_warm for _, is_warm in found} == {str(warm)}, text
    (weights,) = {weights for weights, _ in found}
    return str(weights)


@pytest.mark.parametrize(
    ("entrypoint", "slots"),
    [
        ("python3 script.py", 1),
        ("model:Trial", 1),
        ("python3 -m determined.launch.torch_distributed python3 script.py", 2),
    ],
    ids=["script", "trial class", "two slots"],
)
def test_weights_are_equal_warm_and_cold(lab: Lab, entrypoint: str, slots: int) -> None:
    cold = train(lab, warm=False, entrypoint=entrypoint, slots=slots)
    warm = train(lab, warm=True, entrypoint=entrypoint, slots=slots)
    crashed = train(lab, warm=True, breaks="CRASH", entrypoint=entrypoint, slots=slots)
    assert (warm, crashed) == (cold, cold)
    if slots == 1:  # a rank alone cannot wait for the request in the middle of a batch
        assert train(lab, warm=True, breaks="PAUSE", entrypoint=entrypoint) == cold
