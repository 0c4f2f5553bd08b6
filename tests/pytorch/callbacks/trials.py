"""Trials and readers that the tests of callbacks share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from determined import pytorch
from determined.pytorch import PyTorchCallback, PyTorchTrialContext
from tests.support.trials import LineTrial, checkpoints, train

MakeCallbacks = Callable[[PyTorchTrialContext], dict[str, PyTorchCallback]]


def fit(
    make_callbacks: MakeCallbacks,
    batches: int,
    trial_class: type[LineTrial] = LineTrial,
    init: dict[str, Any] | None = None,
    **options: Any,
) -> LineTrial:
    """Train a trial with callbacks for so many batches, and report every other one."""

    def make(context: PyTorchTrialContext) -> LineTrial:
        trial = trial_class(context)
        trial.callbacks = make_callbacks(context)
        return trial

    options = {
        "reporting_period": pytorch.Batch(2),
        "checkpoint_policy": "none",
        "progress": False,
        **options,
    }
    return train(
        make,
        {"seed": 7, "run_id": "run", **(init or {})},
        max_length=pytorch.Batch(batches),
        **options,
    )


class NormNet(torch.nn.Module):
    """A model with batch norm, and a mask that is infinite by design."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(1, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.last = torch.nn.Linear(4, 1)
        self.register_buffer("mask", torch.full((2,), -torch.inf))

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.norm(self.first(x)))


class NormTrial(LineTrial):
    """Trains `NormNet` with Adam; the batches in `bad` are NaN."""

    num_batches = 12
    bad: tuple[int, ...] = ()

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.log: list[Any] = []
        self.callbacks: dict[str, PyTorchCallback] = {}
        torch.manual_seed(3)
        self.model = context.wrap_model(NormNet())
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.01))
        self.after_batch: list[dict[str, torch.Tensor]] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        x, y = batch
        if batch_idx in self.bad:
            x = x * torch.nan
        metrics = super().train_batch((x, y), epoch_idx, batch_idx)
        self.after_batch.append(copied(self.model))
        return metrics


def copied(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of all tensors of a model."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Say whether two models are equal bit for bit."""
    return one.keys() == other.keys() and all(
        torch.equal(one[k].cpu(), other[k].cpu()) for k in one
    )


def saved(batches_trained: int, root: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Read the tensors of the only checkpoint after so many batches."""
    (path,) = checkpoints(root)[batches_trained]
    return read_state(path)


def read_state(path: Path) -> dict[str, Any]:
    """Read the tensors of a checkpoint."""
    state: dict[str, Any] = torch.load(path / "state_dict.pth", weights_only=False)
    return state


def all_saved_are_finite(root: str | os.PathLike[str] | None = None) -> bool:
    """Say whether nothing on disk is NaN or infinite, but the mask."""
    paths = [path for paths in checkpoints(root).values() for path in paths]
    assert paths
    return all(_is_finite(read_state(path)) for path in paths)


def _is_finite(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not value.is_floating_point() or bool(value.isfinite().all())
    if isinstance(value, dict):
        return all(_is_finite(entry) for key, entry in value.items() if key != "mask")
    if isinstance(value, (list, tuple)):
        return all(map(_is_finite, value))
    return True
