"""A trial as a list of parts, and the trial that is made from it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from determined import pytorch
from tests.exactness.parts.data import DATA, WIDTH, Reacting, validation_loader
from tests.exactness.parts.extras import EXTRAS, HIDDEN
from tests.exactness.parts.optimizers import OPTIMIZERS
from tests.exactness.parts.schedulers import MODES, SCHEDULERS

Note = Callable[..., None]
Reach = Callable[[str], None]


class OnlyChanges:
    """Has a `repr` that shows only what is not the default, and that makes the same value."""

    def __repr__(self) -> str:
        fields: Any = dataclasses.fields(self)  # type: ignore[arg-type]  # subclasses are those
        shown = [(f.name, getattr(self, f.name)) for f in fields]
        shown = [(n, v) for (n, v), f in zip(shown, fields, strict=True) if v != f.default]
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in shown)})"


@dataclasses.dataclass(frozen=True, repr=False)
class Recipe(OnlyChanges):
    """What a trial is made of and how it is trained; the defaults are the plainest choice."""

    optimizer: str = "SGD"
    scheduler: str | None = None
    steps_every: str = "batch"
    dtype: str = "float32"
    precision: str | None = None
    accumulation: int = 1
    clips: bool = False
    extras: tuple[str, ...] = ()
    data: str = "in order"
    workers: int = 0
    validation_data: str = "in order"
    records: int = 9
    batch_size: int = 3
    batches: int = 6
    report_every: int = 100
    validate_every: int | None = None
    save_every: int | None = None
    in_background: bool = False
    parallel: str = "ddp"
    ranks: int = 1

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype


class RecipeTrial(pytorch.PyTorchTrial):
    """Trains what a recipe asks for; notes each batch, and says where it is."""

    def __init__(
        self, context: pytorch.PyTorchTrialContext, recipe: Recipe, note: Note, reach: Reach
    ) -> None:
        self.context = context
        self.recipe = recipe
        self.note = note
        self.reach = reach
        self.sampler: Any = None
        self.extras = [EXTRAS[name]() for name in recipe.extras]
        self.scaler: Any = None
        if recipe.precision == "scaler":
            scaler = torch.amp.GradScaler(context.device.type, init_scale=4.0, growth_interval=3)
            self.scaler = context.wrap_scaler(scaler)
        if recipe.data.startswith("torch") or recipe.validation_data != "in order":
            context.experimental.disable_dataset_reproducibility_checks()
        self.model = context.wrap_model(self._model(), parallel=recipe.parallel)
        optimizer = OPTIMIZERS[recipe.optimizer](list(self.model.parameters()))
        self.optimizer = context.wrap_optimizer(optimizer)
        if recipe.scheduler is not None:
            scheduler = SCHEDULERS[recipe.scheduler](self.optimizer)
            context.wrap_lr_scheduler(scheduler, MODES[recipe.steps_every])
        for extra in self.extras:
            extra.build(self)
        self.used_callbacks = {
            k: c for extra in self.extras for k, c in extra.callbacks(self).items()
        }

    def _model(self) -> nn.Module:
        middle = [layer for extra in self.extras for layer in extra.layers()]
        layers = nn.Linear(WIDTH, HIDDEN), *middle, nn.Tanh(), nn.Linear(HIDDEN, 1)
        return nn.Sequential(*layers).to(self.recipe.torch_dtype)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return dict(self.used_callbacks)

    def build_training_data_loader(self) -> Any:
        recipe = self.recipe
        loader = DATA[recipe.data](recipe.records, recipe.batch_size, recipe.workers)
        self.sampler = getattr(loader, "sampler", None)
        return loader

    def build_validation_data_loader(self) -> Any:
        return validation_loader(self.recipe.validation_data)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        numbers, inputs = batch
        inputs = inputs.to(self.recipe.torch_dtype)
        loss = self._loss(inputs)
        for extra in self.extras:
            loss = extra.loss(self, inputs, loss)
        self._update(loss, batch_idx)
        for extra in self.extras:
            extra.after_step(self, inputs)
        if isinstance(self.sampler, Reacting):
            self.sampler.tell(numbers.tolist(), loss.item())
        self.note("batch", batch_idx, numbers.tolist(), loss.item())
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self.reach("evaluate_batch")
        inputs = batch[1].to(self.recipe.torch_dtype)
        for extra in self.extras:
            extra.evaluate(inputs)
        return {"error": self._loss(inputs)}

    def _loss(self, inputs: torch.Tensor) -> torch.Tensor:
        autocast: Any = contextlib.nullcontext()
        if self.recipe.precision == "autocast":
            autocast = torch.autocast(inputs.device.type, dtype=torch.bfloat16)
        with autocast:
            output = self.model(inputs)
        target = inputs.sum(1, keepdim=True)
        loss: torch.Tensor = nn.functional.smooth_l1_loss(output.to(target), target)
        return loss

    def _update(self, loss: torch.Tensor, batch_idx: int) -> None:
        norm = 0.5 if self.recipe.clips else None
        if self.scaler is None:
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer, clip_grad_norm=norm)
            return
        self.context.backward(self.scaler.scale(loss))
        self.context.step_optimizer(self.optimizer, scaler=self.scaler, clip_grad_norm=norm)
        if (batch_idx + 1) % self.recipe.accumulation == 0:
            self.scaler.update()
