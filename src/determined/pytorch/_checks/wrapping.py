"""What the `wrap_` methods of the context accept, and in which order."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from determined.errors import InvalidExperimentException
from determined.pytorch._checks.arguments import check_methods
from determined.pytorch._context.gradients import parameters_of
from determined.pytorch._context.lr_scheduler import LRScheduler


def check_optimizer(optimizer: Any) -> None:
    """Refuse what has no parameter groups."""
    if not isinstance(getattr(optimizer, "param_groups", None), list):
        raise TypeError(f"`optimizer` must be a torch optimizer, got {optimizer!r}.")


def check_scaler(scaler: Any) -> None:
    """Refuse what cannot do what torch's gradient scaler does."""
    methods = ("scale", "step", "update", "state_dict", "load_state_dict")
    check_methods("scaler", scaler, methods, "a gradient scaler")


def check_not_built_before_sharding(
    optimizer: Optimizer, unsharded: Iterable[weakref.ref[nn.Parameter]]
) -> None:
    """Refuse an optimizer of the parameters that a sharded model had before: it does nothing."""
    before = {id(reference()) for reference in unsharded} - {id(None)}
    if any(id(parameter) in before for parameter in parameters_of(optimizer)):
        raise InvalidExperimentException(
            f"This {type(optimizer).__name__} was built before context.wrap_model(model, "
            "parallel='fsdp') sharded the weights: build it from the wrapped model's "
            "parameters."
        )


def check_holds_whole_state(optimizer: Optimizer, num_ranks: int) -> None:
    """Refuse torch's ZeroRedundancyOptimizer: a rank cannot save the state that others hold."""
    if num_ranks > 1 and hasattr(optimizer, "consolidate_state_dict"):
        raise InvalidExperimentException(
            f"{type(optimizer).__name__} keeps a part of its state on each rank, which "
            "checkpoints do not support: use context.wrap_model(model, parallel='fsdp') and a "
            "plain optimizer, which shards weights and gradients as well."
        )


def check_lr_scheduler(
    lr_scheduler: Any, step_mode: LRScheduler.StepMode | None, optimizers: Iterable[Optimizer]
) -> LRScheduler.StepMode:
    """Refuse a scheduler that cannot be stepped as asked; return the mode."""
    methods = ("step", "state_dict", "load_state_dict")
    check_methods("lr_scheduler", lr_scheduler, methods, "a learning-rate scheduler")
    if step_mode is None:
        raise TypeError(
            "wrap_lr_scheduler needs `step_mode`, which says when the trainer steps the "
            "scheduler: write context.wrap_lr_scheduler(scheduler, "
            "pytorch.LRScheduler.StepMode.STEP_EVERY_EPOCH), or STEP_EVERY_BATCH."
        )
    if isinstance(lr_scheduler, ReduceLROnPlateau) and (
        step_mode != LRScheduler.StepMode.MANUAL_STEP
    ):
        raise InvalidExperimentException(
            "ReduceLROnPlateau needs a metric for each step: wrap it with "
            "StepMode.MANUAL_STEP and call its step(metric) yourself, for example in "
            "on_validation_end."
        )
    optimizer = getattr(lr_scheduler, "optimizer", None)
    if optimizer is not None and all(optimizer is not o for o in optimizers):
        raise InvalidExperimentException(
            "The scheduler's optimizer is not wrapped: pass it through "
            "context.wrap_optimizer first."
        )
    return step_mode
