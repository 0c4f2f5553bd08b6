"""A small module for Lightning, and a script that trains it; for both packages.

As the entrypoint of an experiment it trains as the hyperparameters say and prints a digest of the
weights:

    package                 lightning.pytorch or pytorch_lightning
    learning_rate
    kill_at, pause_at       the first run kills itself after that batch; a run waits there, once,
                            until it is asked to stop
    others                  of the trainer
"""

from __future__ import annotations

import hashlib
import importlib
import os
import signal
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import determined as det
from determined import core
from tests.support.waiting import eventually

BATCHES = 7  # of an epoch


def build_module(pl: Any, learning_rate: float = 0.05) -> Any:
    """A module with dropout, whose weights show any difference in the data or random numbers."""

    class Sine(pl.LightningModule):  # type: ignore[misc]
        def __init__(self, learning_rate: float) -> None:
            super().__init__()
            self.save_hyperparameters()
            torch.manual_seed(3)
            self.net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("error", nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), self.hparams["learning_rate"])
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]

    return Sine(learning_rate)


def build_loaders(workers: int = 0, **given: Any) -> dict[str, Any]:
    """Training data in random order, and validation data."""
    x = torch.linspace(-3, 3, 4 * BATCHES).unsqueeze(1)
    data = TensorDataset(x, torch.sin(x))
    train = DataLoader(data, 4, shuffle=True, num_workers=workers, **given)
    return {"train_dataloaders": train, "val_dataloaders": DataLoader(data, 14)}


def build_trainer(pl: Any, *callbacks: Any, **given: Any) -> Any:
    """A quiet trainer."""
    values: dict[str, Any] = {
        "max_epochs": 3,
        "callbacks": list(callbacks),
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 2,
        **given,
    }
    return pl.Trainer(**values)


def digest(module: nn.Module) -> str:
    """Return a hash of all weights."""
    weights = (value.detach().numpy().tobytes() for value in module.parameters())
    return hashlib.sha256(b"".join(weights)).hexdigest()[:16]


def incidents(pl: Any, context: core.Context, kill_at: int, pause_at: int) -> Any:
    """A callback that kills the process after a batch, or waits there for a request to stop."""

    class Incidents(pl.Callback):  # type: ignore[misc]
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, idx: int) -> None:
            info = det.get_cluster_info()
            assert info is not None
            batches, rank = trainer.fit_loop.total_batch_idx, context.distributed.rank
            if batches == kill_at and info.latest_checkpoint is None and rank == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if batches == pause_at and info.trial._steps_completed < pause_at:
                print(f"waiting after {batches} batches", flush=True)  # noqa: T201
                eventually(context.preempt.preempt_requested_locally)

    return Incidents()


def main() -> None:
    """Train as the hyperparameters say."""
    from determined.lightning import DetCallback

    info = det.get_cluster_info()
    assert info is not None
    hparams = dict(info.trial.hparams)
    pl = importlib.import_module(hparams.pop("package", "lightning.pytorch"))
    at = hparams.pop("kill_at", -1), hparams.pop("pause_at", -1)
    pl.seed_everything(5)
    module = build_module(pl, hparams.pop("learning_rate", 0.05))
    callback = DetCallback()
    trainer = build_trainer(pl, incidents(pl, callback.core_context, *at), callback, **hparams)
    trainer.fit(module, **build_loaders(), ckpt_path=callback.latest())
    print(f"weights {digest(module)}")  # noqa: T201


if __name__ == "__main__":
    main()
