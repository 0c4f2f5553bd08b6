"""Trains a trial made of given parts, unbroken and in pieces, and compares what it ends with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch
from tests.support.resumable import digest

BATCHES = 12


class Parts(pytorch.PyTorchTrial):
    """A small network; subclasses say which model, optimizer, schedulers and callbacks."""

    dtype = torch.float32

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(self.build_model())
        self.optimizer = context.wrap_optimizer(self.build_optimizer(self.model.parameters()))
        modes = pytorch.LRScheduler.StepMode
        self.stepped_by_hand: list[Any] = []
        for scheduler in self.build_schedulers(self.optimizer):
            if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                context.wrap_lr_scheduler(scheduler, modes.MANUAL_STEP)
                self.stepped_by_hand.append(scheduler)
            else:
                context.wrap_lr_scheduler(scheduler, modes.STEP_EVERY_BATCH)
        self.callbacks = self.make_callbacks()

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(self.dtype)

    def build_optimizer(self, parameters: Iterable[Any]) -> Any:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def build_schedulers(self, optimizer: Any) -> list[Any]:
        return []

    def make_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {}

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return self.callbacks

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = self.model(batch[0].to(self.dtype)).float().pow(2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        for scheduler in self.stepped_by_hand:
            scheduler.step(1.0)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"loss": self.model(batch[0].to(self.dtype)).float().mean()}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        data = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
        return pytorch.DataLoader(TensorDataset(data), batch_size=4, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(TensorDataset(torch.ones(2, 3)), batch_size=2)


def train_to(
    storage: Path, length: int, trial_class: Callable[..., Any], **options: Any
) -> dict[str, str]:
    """Train up to so many batches, from where the storage has the run; return all it ends with."""
    init = {"run_id": "run", "seed": 3, "enable_tensorboard_logging": False}
    fit = {"progress": False, "checkpoint_policy": "none", "latest_checkpoint": "latest"}
    init |= {key: options.pop(key) for key in list(options) if key == "trusted_classes"}
    with pytorch.init(checkpoint_storage=storage, **init) as context:  # type: ignore[arg-type]  # plain values
        trial = trial_class(context)
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(length), **{**fit, **options})
        return ending(trial)


def ending(trial: Any) -> dict[str, str]:
    context = trial.context
    found = {
        "weights": [dict(model.named_parameters()) for model in context.models],
        "buffers": [dict(model.named_buffers()) for model in context.models],
        "flags": [[p.requires_grad for p in model.parameters()] for model in context.models],
        "optimizers": [optimizer.state_dict() for optimizer in context.optimizers],
        "schedulers": [scheduler.state_dict() for scheduler in context.lr_schedulers],
        "callbacks": {name: c.state_dict() for name, c in trial.callbacks.items()},
    }
    return {name: digest(state) for name, state in found.items()}


def ends_alike(
    folder: Path, trial_class: Callable[..., Any], stops: Iterable[int] = (4, 9), **options: Any
) -> None:
    """Assert that a run that was stopped ends as one that was not, saved in both ways in turns."""
    unbroken = train_to(folder / "unbroken", BATCHES, trial_class, **options)
    for length, background in zip((*stops, BATCHES), itertools.cycle((True, False))):  # endless
        end = train_to(
            folder / "stopped", length, trial_class, async_checkpoint=background, **options
        )
    assert end == unbroken, [name for name in end if end[name] != unbroken[name]]
