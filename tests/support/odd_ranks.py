"""Ordinary and odd ways to train on several ranks, run unbroken and run with stops.

Nets have many small weights and buckets of a few of them: with three ranks or more, sums over ranks
depend on where in its bucket a gradient stands.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from determined import pytorch
from determined.pytorch import Batch, DataLoader, PyTorchCallback, PyTorchTrialContext
from determined.pytorch._ranks.fsdp import local_part
from tests.support.resumable import digest

BUCKET_MB = 0.002
WIDTH = 12


def deep() -> nn.Module:
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(6)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 3))


def normed(norm: type[nn.Module] = nn.BatchNorm1d) -> nn.Module:
    layers = [
        nn.Sequential(nn.Linear(WIDTH, WIDTH), norm(WIDTH), nn.Dropout(0.2), nn.Tanh())
        for _ in range(4)
    ]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 3))


class Branches(nn.Module):
    """Uses one of two branches, or both; which one is the caller's choice."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(WIDTH, WIDTH)
        self.right = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor, branch: str = "left") -> torch.Tensor:
        inner = self.left if branch == "left" else self.right
        y: torch.Tensor = self.head(torch.tanh(inner(x)))
        return y


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to train: the model, how it is distributed, and what the trial does with it."""

    model: Callable[[], nn.Module] = deep
    options: dict[str, Any] = dataclasses.field(
        default_factory=lambda: {"bucket_cap_mb": BUCKET_MB}
    )
    aggregation: int = 1
    amp: torch.dtype | None = None
    fp16_compression: bool = False
    models: int = 1
    clip: float | None = None
    branch: Callable[[int, int], str] | None = None  # of batch and rank
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    prepare: Callable[[Any], None] | None = None  # called with the trial when all is wrapped
    callbacks: Callable[[Any], dict[str, PyTorchCallback]] | None = None
    dtype: torch.dtype = torch.float32
    records: int = 60


class WayTrial(pytorch.PyTorchTrial):
    """Trains as a `Way` says; notes a digest of all weights after every batch."""

    def __init__(self, context: PyTorchTrialContext, way: Way) -> None:
        self.context, self.way = context, way
        self.digests: list[str] = []
        self.losses: list[float] = []
        if way.amp is not None:
            context.experimental.use_amp(dtype=way.amp)
        self.models = [
            context.wrap_model(way.model().to(way.dtype), **way.options) for _ in range(way.models)
        ]
        self.optimizers = [
            context.wrap_optimizer(
                way.optimizer(model.parameters(), lr=0.02), fp16_compression=way.fp16_compression
            )
            for model in self.models
        ]
        if way.prepare is not None:
            way.prepare(self)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        own = {} if self.way.callbacks is None else self.way.callbacks(self)
        return {**own, "notes": _Notes(self)}

    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(_records(self.way.records), batch_size=2, shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return DataLoader(_records(5), batch_size=2)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        x = x.to(self.way.dtype)
        named = {}
        if self.way.branch is not None:
            named["branch"] = self.way.branch(batch_idx, self.context.distributed.rank)
        loss = torch.stack(
            [functional.cross_entropy(model(x, **named).float(), y) for model in self.models]
        ).sum()
        self.context.backward(loss)
        for optimizer in self.optimizers:
            self.context.step_optimizer(optimizer, clip_grad_norm=self.way.clip)
        self.losses.append(loss.item())
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        x, y = batch
        outputs = [model(x.to(self.way.dtype)) for model in self.models]
        return {"error": sum(functional.cross_entropy(o.float(), y) for o in outputs)}


class _Notes(PyTorchCallback):
    def __init__(self, trial: WayTrial) -> None:
        self.trial = trial

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        self.trial.digests.append(weights(self.trial))


def weights(trial: WayTrial) -> str:
    return digest([local(p) for model in trial.models for p in model.parameters()])


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return what this rank holds, in a form that can be hashed."""
    part: torch.Tensor = local_part(tensor.detach())
    return part.view(torch.int16) if part.dtype is torch.bfloat16 else part


def _records(length: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(5)
    return TensorDataset(
        torch.randn(length, WIDTH, generator=generator),
        torch.randint(3, (length,), generator=generator),
    )


def train(storage: Path, way: Way, batches: int, **options: Any) -> WayTrial:
    """Train from where the storage is to `batches`."""
    with pytorch.init(
        seed=11,
        aggregation_frequency=way.aggregation,
        checkpoint_storage=storage,
        run_id="way",
        enable_tensorboard_logging=False,
    ) as context:
        trial = WayTrial(context, way)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(batches),
            latest_checkpoint="latest",
            checkpoint_policy="none",
            progress=False,
            **options,
        )
    return trial


@dataclasses.dataclass(frozen=True)
class Ending:
    """What a run came to on one rank."""

    digests: tuple[str, ...]  # of the weights after each batch
    losses: tuple[float, ...]
    state: str


def run(storage: Path, way: Way, batches: int, stops: Sequence[int] = ()) -> Ending:
    """Train to the end, anew from its checkpoint after each of `stops`."""
    digests, losses = [], []
    for length in [*stops, batches]:
        trial = train(storage, way, length)
        digests += trial.digests
        losses += trial.losses
    state = [
        *(local(b) for model in trial.context.models for b in model.buffers()),
        *(
            local(value)
            for optimizer in trial.optimizers
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        ),
        torch.get_rng_state(),
    ]
    return Ending(tuple(digests), tuple(losses), digest(state))


def unbroken_and_stopped(
    storage: Path, ways: dict[str, Way], batches: int, stops: Sequence[int]
) -> dict[str, tuple[Ending, Ending]]:
    """Run each way unbroken, and with stops."""
    os.chdir(storage)  # the code in the working directory becomes part of each checkpoint
    return {
        name: (
            run(storage / name / "1", way, batches),
            run(storage / name / "2", way, batches, stops),
        )
        for name, way in ways.items()
    }
