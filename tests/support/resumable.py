"""A small trial in which everything that a checkpoint must carry matters, and its fingerprints."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.storage import SharedFSStorageManager, StoredCheckpoint

EPOCH_LENGTH = 5
# What a checkpoint of one rank holds beside the code.
FILES = [
    "state_dict.pth",
    "ranks/rank_0.pth",
    "trial_state.pkl",
    "run.json",
    "load_data.json",
    "metadata.json",
    "manifest.json",
]


class Counter(pytorch.PyTorchCallback):
    """Counts batches, so that lost or repeated ones show."""

    def __init__(self) -> None:
        self.batches = 0

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        self.batches += 1

    def state_dict(self) -> dict[str, Any]:
        return {"batches": self.batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.batches = state_dict["batches"]


class ResumableTrial(pytorch.PyTorchTrial):
    """Dropout, batch norm, noise of three generators, two optimizers, a scaler, two schedulers."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
        self.scaler = context.wrap_scaler(scaler)
        self.body = context.wrap_model(
            nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.ReLU())
        )
        self.head = context.wrap_model(nn.Linear(6, 2))
        self.body_optimizer = context.wrap_optimizer(
            torch.optim.Adam(self.body.parameters(), lr=0.05)
        )
        self.head_optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.head.parameters(), lr=0.05, momentum=0.9)
        )
        modes = pytorch.LRScheduler.StepMode
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.ExponentialLR(self.body_optimizer, 0.9),
            modes.STEP_EVERY_BATCH,
        )
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.StepLR(self.head_optimizer, 1), modes.STEP_EVERY_EPOCH
        )
        self.callbacks = {"counter": Counter()}
        self.losses: list[float] = []
        self.sample_ids: list[list[int]] = []

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return dict(self.callbacks)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        ids, inputs, targets = batch
        inputs = inputs + torch.rand(()) + random.random() + np.random.rand()
        loss = nn.functional.cross_entropy(self.head(self.body(inputs)), targets)
        self.context.backward(self.scaler.scale(loss))
        self.context.step_optimizer(self.body_optimizer, scaler=self.scaler)
        self.context.step_optimizer(self.head_optimizer, scaler=self.scaler)
        if (batch_idx + 1) % self.context._aggregation_frequency == 0:
            self.scaler.update()
        self.losses.append(loss.item())
        self.sample_ids.append(ids.tolist())
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        ids, inputs, targets = batch
        return {"error": nn.functional.cross_entropy(self.head(self.body(inputs)), targets)}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(_data(3 * EPOCH_LENGTH), batch_size=3, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(_data(4), batch_size=2)


def _data(length: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    ids = torch.arange(length)
    return TensorDataset(ids, torch.randn(length, 4, generator=generator), ids % 2)


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a run came to: equal for a broken and an unbroken one."""

    weights: str
    optimizers: str
    callback: int
    scale: float
    losses: tuple[float, ...]
    sample_ids: tuple[tuple[int, ...], ...]

    def ends_like(self, unbroken: Trained) -> bool:
        """Whether this is the last part of the unbroken run."""
        count = len(self.losses)
        return (
            dataclasses.replace(unbroken, losses=self.losses, sample_ids=self.sample_ids) == self
            and unbroken.losses[len(unbroken.losses) - count :] == self.losses
            and unbroken.sample_ids[len(unbroken.losses) - count :] == self.sample_ids
        )


def train(
    storage: Path | dict[str, Any],
    batches: int,
    *,
    aggregation: int = 1,
    seed: int = 7,
    init: Mapping[str, Any] | None = None,
    trial_class: type[ResumableTrial] = ResumableTrial,
    **fit: Any,
) -> Trained:
    """Train from the start, or from `latest_checkpoint`, until `batches` are trained."""
    options = {"enable_tensorboard_logging": False, "run_id": "run", **(init or {})}
    with pytorch.init(
        seed=seed,
        aggregation_frequency=aggregation,
        checkpoint_storage=storage,
        **options,
    ) as context:
        trial = trial_class(context)
        fit.setdefault("checkpoint_policy", "none")
        fit.setdefault("progress", False)
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(batches), **fit)
    return fingerprint(trial)


def fingerprint(trial: ResumableTrial) -> Trained:
    return Trained(
        weights=digest([trial.body.state_dict(), trial.head.state_dict()]),
        optimizers=digest([o.state_dict() for o in trial.context.optimizers]),
        callback=trial.callbacks["counter"].batches,
        scale=trial.scaler.get_scale(),
        losses=tuple(trial.losses),
        sample_ids=tuple(tuple(ids) for ids in trial.sample_ids),
    )


def digest(state: Any) -> str:
    """Hash every bit of a nest of tensors and plain values."""
    found = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor) and hasattr(value, "__tensor_flatten__"):
            for name in value.__tensor_flatten__()[0]:
                add(getattr(value, name))
        elif isinstance(value, torch.Tensor):
            found.update(f"{value.dtype}{tuple(value.shape)}".encode())
            plain = value.detach().contiguous()
            if plain.dtype == torch.bfloat16:  # unknown to numpy
                plain = plain.view(torch.int16)
            found.update(plain.cpu().numpy().tobytes())
        elif isinstance(value, Mapping):
            for key, entry in value.items():
                found.update(repr(key).encode())
                add(entry)
        elif isinstance(value, (list, tuple)):
            for entry in value:
                add(entry)
        else:
            add_object(value)

    def add_object(value: Any) -> None:
        if isinstance(value, np.random.Generator):
            add(value.bit_generator.state)
        elif isinstance(value, torch.Generator):
            add(value.get_state())
        elif callable(getattr(value, "state_dict", None)):
            add(value.state_dict())
        elif hasattr(value, "__qualname__"):  # the rest of a function is its address
            add(value.__qualname__)
        elif dataclasses.is_dataclass(value):
            add(vars(value))
        else:
            found.update(repr(value).encode())

    add(state)
    return found.hexdigest()


def checkpoints(storage: Path, run_id: str | None = "run") -> list[StoredCheckpoint]:
    """Return the whole checkpoints in the order in which they were saved."""
    found = SharedFSStorageManager(storage).list(run_id)
    return sorted(found, key=lambda checkpoint: checkpoint.manifest.sequence)


def steps(storage: Path) -> list[int]:
    return [int(checkpoint.metadata["steps_completed"]) for checkpoint in checkpoints(storage)]


def trial_in_working_directory(patch: pytest.MonkeyPatch) -> type[ResumableTrial]:
    """Write a trial to `model_def.py`, where a user's would be, and import it."""
    path = Path("model_def.py").absolute()
    path.write_text(
        "from tests.support.resumable import ResumableTrial\n\n\n"
        "class Trial(ResumableTrial):\n    pass\n"
    )
    spec = importlib.util.spec_from_file_location("model_def", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, "model_def", module)
    spec.loader.exec_module(module)
    found: type[ResumableTrial] = module.Trial
    return found
