"""Trainers of scripts that nobody launched: recorded, resumed as the same trial, and as exact."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from determined import journal
from determined.journal import InboxItem, JournalReader, item_names
from determined.store import Experiment, ExperimentFilter
from tests.support import tracked
from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(300)]

_SCRIPT = """
import hashlib, io, os, signal, sys
import torch
from determined import pytorch
from determined.pytorch import callbacks

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr"))
        self.optimizer = context.wrap_optimizer(optimizer)

    def data(self):
        numbers = torch.Generator().manual_seed(0)
        return torch.utils.data.TensorDataset(torch.randn(64, 4, generator=numbers))

    def build_training_data_loader(self):
        return pytorch.DataLoader(self.data(), batch_size=4, shuffle=True, num_workers=WORKERS)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(self.data(), batch_size=16)

    def build_callbacks(self):
        monitors = {"lr": callbacks.LearningRateMonitor, "norm": callbacks.GradientNorm}
        return {name: monitor(self.context) for name, monitor in monitors.items()}

    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx == DIE_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        if batch_idx == RAISE_AT:
            raise ValueError("bad luck")
        if batch_idx == STOP_AT:
            os.kill(os.getpid(), signal.SIGTERM)
        loss = (self.model(batch[0] + torch.rand(1)) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch):
        return {"error": (self.model(batch[0]) ** 2).mean()}

names = ("DIE_AT", "RAISE_AT", "STOP_AT")
DIE_AT, RAISE_AT, STOP_AT = (int(os.environ.get(name, -1)) for name in names)
WORKERS = int(os.environ.get("WORKERS", 0))
with pytorch.init(hparams={"lr": 0.1, "net": {"depth": 1}}, seed=3) as context:
    trial = Trial(context)
    pytorch.Trainer(trial, context).fit(
        max_length=pytorch.Batch(24),
        validation_period=pytorch.Batch(8),
        checkpoint_period=pytorch.Batch(8),
        reporting_period=pytorch.Batch(4),
        checkpoint_policy="none",
        async_checkpoint=False,
        latest_checkpoint="latest",
        metric="error",
        test_mode="TEST_MODE" in os.environ,
    )
    if context.distributed.rank == 0:
        weights = trial.model.state_dict()
        print(hashlib.sha256(b"".join(w.numpy().tobytes() for w in weights.values())).hexdigest())
"""


def experiments(lab: Lab) -> list[Experiment]:
    if not lab.service.has_store:
        return []
    return list(lab.service.reader.experiments(ExperimentFilter()).rows)


def steps(lab: Lab, trial_id: int, group: str) -> list[int]:
    return [r.steps_completed for r in lab.service.reader.metrics.reports(trial_id, group)]


@pytest.fixture
def script(lab: Lab) -> Path:
    return tracked.write(lab.folder, _SCRIPT)


def test_a_killed_run_that_is_started_again_is_one_experiment_and_exact(
    lab: Lab, script: Path
) -> None:
    home = lab.home.path
    killed, _, _ = tracked.run(home, script, DIE_AT="13", WORKERS="1")
    assert killed == -signal.SIGKILL
    lab.until(lambda: [e.state for e in experiments(lab)] == ["ERROR"])
    # What the checkpoint covers is there; of what came after it, the last moment may be lost.
    assert steps(lab, 1, "training") in ([4, 8], [4, 8, 12])
    status, resumed, _ = tracked.run(home, script)
    assert status == 0
    lab.until(lambda: [e.state for e in experiments(lab)] == ["COMPLETED"])
    (experiment,) = experiments(lab)
    (trial,) = lab.trials(experiment.id)
    assert trial.hparams == {"lr": 0.1, "net": {"depth": 1}}
    assert (trial.run_id, trial.total_batches) == (2, 24)
    assert steps(lab, trial.id, "training") == [4, 8, 12, 16, 20, 24]
    assert steps(lab, trial.id, "validation") == [8, 16, 24]
    assert [run.steps_completed for run in lab.runs(experiment.id)] == [0, 8]
    found = lab.checkpoints(experiment.id)
    assert [checkpoint.steps_completed for checkpoint in found] == [8, 16, 24]
    assert experiment.best_validation is not None
    for report in lab.service.reader.metrics.reports(trial.id, "training"):
        assert report.metrics["lr/SGD/0"] == 0.1
        assert report.metrics["gradient_norm/SGD"] > 0
    batches = [r.batch_metrics for r in lab.service.reader.metrics.reports(trial.id, "training")]
    assert [len(rows or []) for rows in batches] == [4] * 6
    # The same weights come out where nothing is recorded, in a storage of its own.
    untracked = {"DET_TRACKING": "off", "DET_STORAGE": str(lab.folder / "other")}
    assert tracked.run(home, script, **untracked) == (0, resumed, "")


def test_a_failure_and_a_stop_are_told_in_one_line(lab: Lab, script: Path) -> None:
    home = lab.home.path
    storages = [str(lab.folder / f"storage-{i}") for i in range(2)]
    assert tracked.run(home, script, RAISE_AT="9", DET_STORAGE=storages[0])[0] == 1
    stopped, _, _ = tracked.run(home, script, STOP_AT="9", DET_STORAGE=storages[1])
    assert stopped == 128 + signal.SIGTERM
    lab.until(lambda: [e.state for e in experiments(lab)] == ["ERROR", "CANCELED"])
    failed, canceled = experiments(lab)
    assert failed.reason == "ValueError: bad luck"
    assert canceled.reason == "stopped by SIGTERM"
    assert "in train_batch" in lab.log(lab.runs(failed.id)[0])
    assert lab.checkpoints(canceled.id)[-1].steps_completed == 10


def test_a_quick_try_is_not_recorded(lab: Lab, script: Path) -> None:
    assert tracked.run(lab.home.path, script, TEST_MODE="1")[0] == 0
    assert not lab.home.path.exists()


def test_a_trial_without_hyperparameters_is_recorded(lab: Lab) -> None:
    text = _SCRIPT.replace('context.get_hparam("lr")', "0.1")
    text = text.replace('hparams={"lr": 0.1, "net": {"depth": 1}}, ', "")
    assert tracked.run(lab.home.path, tracked.write(lab.folder, text))[0] == 0
    (name,) = item_names(lab.home.path)
    first = next(JournalReader(InboxItem(lab.home.inbox / name).journal).records())
    assert isinstance(first, journal.Introduction)
    assert first.hparams == {}


def test_only_the_chief_records(lab: Lab, script: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "2", str(script)],
        env=tracked.environment(lab.home.path, OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    (name,) = item_names(lab.home.path)
    records = list(JournalReader(InboxItem(lab.home.inbox / name).journal).records())
    reported = [r for r in records if isinstance(r, journal.Metrics) and r.group == "training"]
    losses = [record for record in reported if "loss" in record.metrics]  # callbacks report, too
    assert [record.steps_completed for record in losses] == [4, 8, 12, 16, 20, 24]
