"""A trial that shows any difference between a run that was cut and one that was not."""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from determined import pytorch
from determined.pytorch._data.seed import seed_everything
from tests.support.orders import Noisy, StatefulStream, Stream, arguments_of
from tests.support.resumable import digest

STREAMS = {"stream": Stream, "stateful stream": StatefulStream}


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to train."""

    kind: str = "shuffle"
    length: int = 11
    batch_size: int = 3
    aggregation: int = 1
    validate_every: int = 4
    num_workers: int = 0
    persistent_workers: bool = False
    prefetch_factor: int | None = None

    def build_loader(self) -> pytorch.DataLoader:
        options: dict[str, Any] = {
            "num_workers": self.num_workers,
            "persistent_workers": self.persistent_workers,
            "prefetch_factor": self.prefetch_factor,
        }
        if self.kind in STREAMS:
            dataset = STREAMS[self.kind](self.length)
            return pytorch.DataLoader(dataset, self.batch_size, **options)
        arguments = arguments_of(self.kind, self.length, self.batch_size)
        return pytorch.DataLoader(Noisy(self.length), **arguments, **options)


@dataclasses.dataclass
class Part:
    """What one process saw: all lists have an entry for each batch, or for each validation."""

    samples: list[list[int]] = dataclasses.field(default_factory=list)
    noise: list[list[float]] = dataclasses.field(default_factory=list)
    losses: list[float] = dataclasses.field(default_factory=list)
    rates: list[list[float]] = dataclasses.field(default_factory=list)
    validations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    end: str = ""

    def __add__(self, later: Part) -> Part:
        return Part(
            self.samples + later.samples,
            self.noise + later.noise,
            self.losses + later.losses,
            self.rates + later.rates,
            self.validations + later.validations,
            later.end,
        )


class Stop(pytorch.PyTorchCallback):
    """Asks to stop after a batch, as a scheduler of machines would; on the chief only."""

    def __init__(self, context: pytorch.PyTorchTrialContext, part: Part, after: int | None) -> None:
        self._context = context
        self._part = part
        self._after = after

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        if self._after == batch_idx + 1 and self._context.distributed.rank == 0:
            backend: Any = self._context._core._backend
            backend.request_preemption()

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self._part.validations.append(dict(metrics))


class ExactTrial(pytorch.PyTorchTrial):
    """Dropout and draws of all kinds, in training and in validation; two schedulers."""

    def __init__(
        self, context: pytorch.PyTorchTrialContext, case: Case, stop_after: int | None
    ) -> None:
        self.context = context
        self.case = case
        self.part = Part()
        self._stop = Stop(context, self.part, stop_after)
        model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.3), nn.ReLU(), nn.Linear(5, 1))
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.1))
        modes = pytorch.LRScheduler.StepMode
        schedulers = torch.optim.lr_scheduler
        context.wrap_lr_scheduler(
            schedulers.ExponentialLR(self.optimizer, 0.97), modes.STEP_EVERY_BATCH
        )
        context.wrap_lr_scheduler(schedulers.StepLR(self.optimizer, 1, 0.9), modes.STEP_EVERY_EPOCH)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"stop": self._stop}

    def build_training_data_loader(self) -> Any:
        return self.case.build_loader()

    def build_validation_data_loader(self) -> Any:
        return pytorch.DataLoader(
            Noisy(5),
            2,
            shuffle=True,
            num_workers=self.case.num_workers,
            persistent_workers=self.case.persistent_workers,
        )

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = self._loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        part = self.part
        part.samples.append(batch[0].tolist())
        part.noise.append(torch.stack([b.double() for b in batch[1:]]).flatten().tolist())
        part.losses.append(loss.item())
        part.rates.append([group["lr"] for group in self.optimizer.param_groups])
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"error": self._loss(batch)}

    def _loss(self, batch: Any) -> torch.Tensor:
        inputs = torch.stack([column.float() for column in batch], 1)
        target = inputs.sum(1, keepdim=True) + random.random() + np.random.rand()
        loss: torch.Tensor = ((self.model(inputs) - target) ** 2).mean()
        return loss


def train(
    case: Case,
    storage: str | Path,
    total: int,
    stop_after: int | None = None,
    *,
    trial_class: type[ExactTrial] = ExactTrial,
    init: Mapping[str, Any] | None = None,
    **fit: Any,
) -> Part:
    """Continue the run in `storage`, or start it, until `total` batches or a stop after fewer."""
    seed_everything(total + (stop_after or 0))  # a new process would have other random numbers
    options: dict[str, Any] = {"seed": 7} if init is None else dict(init)
    with pytorch.init(
        aggregation_frequency=case.aggregation,
        checkpoint_storage=storage,
        enable_tensorboard_logging=False,
        run_id="exact",
        **options,
    ) as context:
        trial = trial_class(context, case, stop_after)
        if context.distributed.size > 1:  # which agree to stop only where something is due
            fit.setdefault("reporting_period", pytorch.Batch(1))
        fit.setdefault("latest_checkpoint", "latest")
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(total),
            validation_period=pytorch.Batch(case.validate_every),
            checkpoint_policy="none",
            progress=False,
            **fit,
        )
        rng = torch.rand(()).item(), random.random(), float(np.random.rand())
    trial.part.end = digest([trial.model.state_dict(), trial.optimizer.state_dict(), rng])
    return trial.part


def train_in_new_process(directory: Path, *arguments: Any, **options: Any) -> Part:
    """Train as a script in `directory` would."""
    os.chdir(directory)
    return train(*arguments, **options)


def train_in_parts(case: Case, storage: Path, total: int, cuts: list[int], **options: Any) -> Part:
    """Train with a stop after each of the cuts, all in this process."""
    whole = Part()
    for stop_after in [*sorted(set(cuts)), None]:
        whole += train(case, storage, total, stop_after, **options)
    return whole
