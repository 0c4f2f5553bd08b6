"""A trial that is paused, killed and watched by dying supervisors ends with the same bits."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil
import pytest

from determined.errors import RefusedError
from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]

LENGTH = 40
TRIAL = """
import hashlib, time
import torch
import determined as det
from determined import pytorch

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 36

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(8, generator=generator) + 0.01 * torch.randn(8)  # noise of the worker
        return x, x.sum().reshape(1)

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.hparams = context.get_hparams()
        layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1)
        )
        self.model = context.wrap_model(layers)
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))

    def loader(self, shuffle):
        return pytorch.DataLoader(
            Data(),
            batch_size=self.context.get_per_slot_batch_size(),
            shuffle=shuffle,
            num_workers=self.hparams["workers"],
        )

    def build_training_data_loader(self):
        return self.loader(True)

    def build_validation_data_loader(self):
        return self.loader(False)

    def train_batch(self, batch, epoch_idx, batch_idx):
        time.sleep(0.03)
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"train_loss": loss.item()}

    def evaluate_batch(self, batch):
        x, y = batch
        return {"loss": torch.nn.functional.mse_loss(self.model(x), y).item()}

if __name__ == "__main__":
    with pytorch.init(hparams=det.get_cluster_info().trial.hparams) as context:
        trial = Trial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(LENGTH),
            validation_period=pytorch.Batch(10),
            checkpoint_period=pytorch.Batch(10),
            reporting_period=pytorch.Batch(1),
        )
        digest = hashlib.sha256()
        for name, value in sorted(trial.model.state_dict().items()):
            digest.update(name.encode() + value.numpy().tobytes())
        print("weights", digest.hexdigest(), flush=True)
"""
DISTRIBUTED = "python3 -m determined.launch.torch_distributed python3 script.py"


def start(lab: Lab, workers: int, slots: int) -> int:
    entrypoint = "python3 script.py" if slots < 2 else DISTRIBUTED
    return lab.create(
        TRIAL.replace("LENGTH", str(LENGTH)),
        entrypoint=entrypoint,
        hyperparameters={"global_batch_size": 6, "workers": workers},
        resources={"slots_per_trial": slots},
        max_restarts=5,
    )


def result(lab: Lab, experiment_id: int) -> tuple[str, dict[str, list[tuple[int, Any]]]]:
    """The digest of the final weights, and every metric row."""
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    (trial,) = lab.trials(experiment_id)
    lines = lab.log(lab.runs(experiment_id)[-1]).splitlines()
    weights = [line.split()[-1] for line in lines if "weights" in line.split()]
    rows = {
        group: [
            (report.steps_completed, report.metrics)
            for report in lab.service.reader.metrics.reports(trial.id, group)
        ]
        for group in ("training", "validation")
    }
    return weights[0], rows


def has_moved(lab: Lab, experiment_id: int, steps: int) -> bool:
    is_over = lab.experiment(experiment_id).state == "COMPLETED"
    return is_over or lab.trials(experiment_id)[0].total_batches > steps


def pause(lab: Lab, experiment_id: int) -> None:
    with contextlib.suppress(RefusedError):  # it may have ended since
        lab.service.pause(experiment_id)
    lab.until(lambda: not lab.service.reader.unfinished_runs())
    if lab.experiment(experiment_id).state == "PAUSED":  # else it was at its end already
        lab.service.activate(experiment_id)


def kill_training(lab: Lab, experiment_id: int) -> None:
    for process in lab.processes():
        try:
            if process.cmdline()[1:] == ["script.py"]:
                process.send_signal(signal.SIGKILL)
                return
        except (psutil.Error, IndexError):
            continue


def kill_supervisor(lab: Lab, experiment_id: int) -> None:
    lab.kill_supervisor()


@pytest.mark.parametrize(
    ("workers", "slots", "acts"),
    [
        (0, 1, (pause, kill_training, kill_supervisor, pause)),
        (2, 1, (kill_training, pause, pause)),
        (0, 2, (pause, kill_training)),
    ],
    ids=["alone", "with loader workers", "on two ranks"],
)
def test_a_disturbed_trial_ends_like_an_unbroken_one(
    lab: Lab, workers: int, slots: int, acts: tuple[Callable[[Lab, int], None], ...]
) -> None:
    unbroken = result(lab, start(lab, workers, slots))
    disturbed = start(lab, workers, slots)
    for number, act in enumerate(acts):
        steps = lab.trials(disturbed)[0].total_batches
        lab.until(partial(has_moved, lab, disturbed, max(steps, 2 + 7 * number)))
        if lab.experiment(disturbed).state == "ACTIVE":
            act(lab, disturbed)
    weights, rows = result(lab, disturbed)
    assert rows == unbroken[1]
    assert weights == unbroken[0]
    assert len(lab.runs(disturbed)) > 1
    assert [steps for steps, _ in rows["validation"]] == [10, 20, 30, 40]
