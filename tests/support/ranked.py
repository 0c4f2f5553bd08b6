"""A small trial for any number of ranks, and how to train it on real processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.pytorch import Batch, DataLoader, PyTorchCallback, PyTorchTrialContext
from tests.support import resumable
from tests.support.workers import run_workers

Results = dict[Any, Any]

# Sums over ranks are added up in another order than within one batch.
TOLERANCE = 2e-6


def on_ranks(size: int, scenario: Callable[..., Any], storage: Path, *args: Any) -> list[Any]:
    """Return what `scenario(storage, ...)` gave on each of `size` real processes."""
    storage.mkdir(exist_ok=True)
    environment = {
        "DET_STORAGE": str(storage / "default"),
        "DET_PROGRESS": "off",
        "DET_COLLECTIVE_TIMEOUT": "60",
    }
    return run_workers(
        size, scenario, storage, *args, deadline_seconds=100, environment=environment
    )


def assert_close(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE)


def fit(
    trial_class: Callable[[PyTorchTrialContext], Any],
    init: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Train for 4 batches unless told otherwise; return the trial."""
    settings: dict[str, Any] = {"seed": 3, "enable_tensorboard_logging": False}
    with pytorch.init(**{**settings, **(init or {})}) as context:
        trial = trial_class(context)
        options = {"max_length": Batch(4), "checkpoint_policy": "none", **options}
        pytorch.Trainer(trial, context).fit(**options)
    return trial


def sgd(trial: Any, lr: float = 0.1, **options: Any) -> Any:
    return trial.context.wrap_optimizer(
        torch.optim.SGD(trial.model.parameters(), lr=lr, momentum=0.9), **options
    )


class NetTrial(pytorch.PyTorchTrial):
    """Classifies 40 records, in global batches of 8; notes the weights after every batch."""

    validation_records = 12

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.seen: list[int] = []
        self.digests: list[str] = []
        self.metrics: list[dict[str, Any]] = []
        self.validated: dict[str, Any] = {}
        self.model = context.wrap_model(self.build_model())
        self.optimizer = sgd(self)
        self.reducer = context.wrap_reducer(list, "in_order", for_training=False)

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"notes": _Notes(self)}

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(records(40), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(records(self.validation_records), batch_size=2)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        ids, x, y = batch
        self.seen += ids.tolist()
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        ids, x, y = batch
        self.reducer.update(ids.tolist())  # type: ignore[attr-defined]  # of the function's reducer
        return {"validation_loss": nn.functional.cross_entropy(self.model(x), y)}

    def weights(self) -> list[np.ndarray]:
        return [p.detach().cpu().numpy().copy() for p in self.model.parameters()]


class _Notes(PyTorchCallback):
    def __init__(self, trial: NetTrial) -> None:
        self.trial = trial

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        self.trial.digests.append(resumable.digest(list(self.trial.model.parameters())))

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        self.trial.metrics.append({**avg_metrics, "per_batch": batch_metrics})

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.trial.validated = dict(metrics)


def records(length: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(5)
    ids = torch.arange(length)
    return TensorDataset(ids, torch.randn(length, 4, generator=generator), ids % 3)
