"""What `backward` and `step_optimizer` do with gradients besides calling torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from determined.errors import InvalidExperimentException
from determined.pytorch._checks.arguments import check_number
from determined.pytorch._ranks.fsdp import is_sharded

if TYPE_CHECKING:
    from determined.pytorch._context.context import PyTorchTrialContext
    from determined.pytorch._context.loss_weights import LossWeights


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return all parameters that an optimizer updates."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def differentiate(
    loss: torch.Tensor, gradient: torch.Tensor | None, retain_graph: bool, create_graph: bool
) -> None:
    """Run torch's backward pass."""
    loss.backward(gradient=gradient, retain_graph=retain_graph, create_graph=create_graph)  # type: ignore[no-untyped-call]  # untyped in torch


def average_gradients(parameters: Iterable[torch.Tensor], divisor: int) -> None:
    """Divide what was summed over the batches of an accumulation window."""
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.data.div_(divisor)


@contextlib.contextmanager
def keeping_other_gradients(context: PyTorchTrialContext, only: Optimizer) -> Iterator[None]:
    """Set the gradients of other optimizers' parameters aside, and put them back.

    The backward pass computes them all: DDP waits until each of a model's parameters has one.
    """
    if id(only) not in context._averages_gradients:
        raise InvalidExperimentException(
            f"`only` must be a wrapped optimizer, got a {type(only).__name__} that is not "
            "wrapped: use context.wrap_optimizer(...)."
        )
    if context._aggregation_frequency > 1 and any(map(is_sharded, context.models)):
        raise InvalidExperimentException(
            "backward(only=...) cannot be combined with gradient accumulation on a model "
            "wrapped with parallel='fsdp', which accumulates its gradients elsewhere: clear "
            "them manually."
        )
    chosen = {id(p) for p in parameters_of(only)}
    parameters = {id(p): p for o in context.optimizers for p in parameters_of(o)}
    parameters |= {id(p): p for model in context.models for p in model.parameters()}
    others = [(p, p.grad) for key, p in parameters.items() if key not in chosen]
    for parameter, _ in others:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in others:
            parameter.grad = gradient


def check_closure(context: PyTorchTrialContext, scaler: Any) -> None:
    """Refuse what cannot be combined with an optimizer that evaluates the loss itself."""
    for is_so, what in (
        (
            context.distributed.size > 1,
            "several ranks, which may evaluate it a different number of times",
        ),
        (context._aggregation_frequency > 1, "an aggregation_frequency above 1"),
        (scaler is not None or context._scaler is not None, "a gradient scaler"),
        (context._use_apex, "apex"),
    ):
        if is_so:
            raise InvalidExperimentException(
                f"step_optimizer(closure=...) cannot be combined with {what}."
            )


def check_no_weights(weights: LossWeights | None, optimizers: Iterable[int]) -> None:
    """Refuse weights in a closure: the optimizer uses its gradients before they are divided."""
    if weights is not None and any(map(weights.is_open, optimizers)):
        raise InvalidExperimentException(
            "The closure of step_optimizer cannot use backward(loss, weight=...): return and "
            "differentiate the mean."
        )


def clipping_to_norm(max_norm: float, clip_grads: Any) -> Callable[[Any], None]:
    """Return the `clip_grads` that `clip_grad_norm` stands for."""
    check_number("clip_grad_norm", max_norm)
    if max_norm == 0 or clip_grads is not None:
        raise ValueError(
            "`clip_grad_norm` must be above 0 and replaces `clip_grads`: give one of the two, got "
            f"clip_grad_norm={max_norm!r} and clip_grads={clip_grads!r}."
        )

    def clip(parameters: Any) -> None:
        torch.nn.utils.clip_grad_norm_(parameters, max_norm)

    return clip
