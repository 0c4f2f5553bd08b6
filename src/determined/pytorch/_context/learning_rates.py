"""The learning rates of a trial, named as TensorBoard and trackers show them."""

from __future__ import annotations

from determined.pytorch._context.context import PyTorchTrialContext


def learning_rates(context: PyTorchTrialContext) -> dict[str, float]:
    """Return `lr/<optimizer>/<group>` of every parameter group, as the next batch will use it."""
    return {
        f"lr/{name}/{group.get('name', index)}": float(group["lr"])
        for name, optimizer in zip(optimizer_names(context), context.optimizers, strict=True)
        for index, group in enumerate(optimizer.param_groups)
        if "lr" in group
    }


def optimizer_names(context: PyTorchTrialContext) -> list[str]:
    """Return the class of each optimizer, numbered where there are several."""
    names = [type(optimizer).__name__ for optimizer in context.optimizers]
    return names if len(names) == 1 else [f"{name}_{i}" for i, name in enumerate(names)]
