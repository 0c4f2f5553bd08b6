"""A trial to fork: small, exact, and with a schedule; its weights are in its log."""

from __future__ import annotations

from typing import Any

from determined.store import Trial
from tests.support.lab import Lab

LENGTH = 24
SCRIPT = """
import hashlib, os, signal, time
import torch
import determined as det
from determined import pytorch

class Trial(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context, self.hparams = context, context.get_hparams()
        self.dropout = torch.nn.Dropout(self.hparams["dropout"])
        layers = torch.nn.Sequential(
            torch.nn.Linear(8, self.hparams.get("hidden", 16)), self.dropout,
            torch.nn.Linear(self.hparams.get("hidden", 16), 1),
        )
        self.model = context.wrap_model(layers)
        self.optimizer = context.wrap_optimizer(
            torch.optim.AdamW(self.model.parameters(), lr=self.hparams["lr"])
        )
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.95)
        context.wrap_lr_scheduler(
            self.scheduler, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH
        )

    def build_training_data_loader(self):
        x = torch.randn(60, 8, generator=torch.Generator().manual_seed(1))
        data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
        size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(data, batch_size=size, shuffle=True)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch, epoch_idx, batch_idx):
        BEFORE_BATCH
        group = self.optimizer.param_groups[0]
        print("batch", batch_idx, "rate", group["lr"], "dropout", self.dropout.p, flush=True)
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"train_loss": loss.item()}

    def evaluate_batch(self, batch):
        x, y = batch
        return {"loss": torch.nn.functional.mse_loss(self.model(x), y).item()}

if __name__ == "__main__":
    info = det.get_cluster_info()
    hparams = {"lr": 0.01, "dropout": 0.3, "global_batch_size": 6}
    if info is not None and info.trial.hparams:
        hparams = info.trial.hparams
    with pytorch.init(hparams=hparams, seed=3) as context:
        trial = Trial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(LENGTH),
            validation_period=pytorch.Batch(8),
            checkpoint_period=pytorch.Batch(5),
            reporting_period=pytorch.Batch(2),
            metric="loss",
            latest_checkpoint="latest",
        )
        digest = hashlib.sha256()
        for name, value in sorted(trial.model.state_dict().items()):
            digest.update(name.encode() + value.cpu().numpy().tobytes())
        print("weights", digest.hexdigest(), flush=True)
"""
DISTRIBUTED = "python3 -m determined.launch.torch_distributed python3 script.py"
ALL_STAY = {"save_trial_latest": 100}


def script(before_batch: str = "pass") -> str:
    """The script, with a statement that runs before each batch."""
    return SCRIPT.replace("LENGTH", str(LENGTH)).replace("BEFORE_BATCH", before_batch.strip())


def create(
    lab: Lab,
    before_batch: str = "pass",
    *,
    slots: int = 1,
    hparams: dict[str, Any] | None = None,
    keeps_all: bool = True,
    **config: Any,
) -> int:
    """Create an experiment with one such trial."""
    values = {"lr": 0.01, "dropout": 0.3, "global_batch_size": 6, **(hparams or {})}
    storage = {"type": "shared_fs", "host_path": str(lab.home.checkpoints)}
    return lab.create(
        script(before_batch),
        entrypoint="python3 script.py" if slots < 2 else DISTRIBUTED,
        hyperparameters=values,
        resources={"slots_per_trial": slots},
        max_restarts=5,
        checkpoint_storage=storage | (ALL_STAY if keeps_all else {}),
        **config,
    )


def finished(lab: Lab, experiment_id: int) -> Trial:
    """The trial of an experiment that has completed."""
    assert lab.wait(experiment_id).state == "COMPLETED", lab.account()
    (trial,) = lab.trials(experiment_id)
    return trial


def weights(lab: Lab, experiment_id: int) -> str:
    """The digest of the final weights."""
    finished(lab, experiment_id)
    (found,) = _lines(lab, experiment_id, "weights")[-1:]
    return found.split()[-1]


def trained(lab: Lab, experiment_id: int) -> list[tuple[int, float, float]]:
    """The number, the rate and the dropout of every batch that was trained, in that order."""
    words = (line[line.index("batch ") :].split() for line in _lines(lab, experiment_id, "dropout"))
    return [(int(w[1]), float(w[3]), float(w[5])) for w in words]


def _lines(lab: Lab, experiment_id: int, word: str) -> list[str]:
    logs = (lab.log(run).splitlines() for run in lab.runs(experiment_id))
    return [line for log in logs for line in log if word in line.split()]


def rows(lab: Lab, trial: Trial) -> dict[str, list[tuple[int, Any]]]:
    """All that a reader sees of a trial's metrics."""
    return {
        group: [
            (report.steps_completed, report.metrics)
            for report in lab.service.reader.metrics.reports(trial.id, group)
        ]
        for group in ("training", "validation")
    }
