"""Trials written for apex's amp: through apex where it is installed, else through torch."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from determined.errors import InvalidExperimentException
from determined.pytorch._context.amp import autocast_forward
from determined.pytorch._ranks.ddp import inner_module

if TYPE_CHECKING:
    from determined.pytorch._context.context import PyTorchTrialContext

logger = logging.getLogger("determined.pytorch")


def configure(
    context: PyTorchTrialContext, models: Any, optimizers: Any, options: dict[str, Any]
) -> tuple[Any, Any, bool]:
    """Set mixed precision up; the last value returned tells whether apex runs it.

    What cannot work is refused in the order of the original.
    """
    if context._scaler is not None and context._scaler.is_enabled():
        raise InvalidExperimentException(
            "apex cannot be combined with a wrapped scaler or use_amp."
        )
    warnings.warn(
        "configure_apex_amp is deprecated, as apex's amp is: call context.experimental.use_amp() "
        "instead.",
        FutureWarning,
        stacklevel=3,
    )
    if context._use_apex or context.experimental._auto_amp:
        raise InvalidExperimentException("configure_apex_amp may be called only once.")
    many_ranks = context.distributed.size > 1
    if many_ranks and options["num_losses"] != 1:
        raise InvalidExperimentException("With several ranks, apex supports only num_losses=1.")
    if many_ranks and context._aggregation_frequency > 1:
        raise InvalidExperimentException("With several ranks, apex cannot accumulate gradients.")
    if context.device.type != "cuda":
        raise InvalidExperimentException("apex needs a CUDA device; use_amp works on every device.")
    if many_ranks or not _importable():
        _through_torch(context, models, options["opt_level"])
        return models, optimizers, False
    return *_through_apex(models, optimizers, options), True


def _importable() -> bool:
    try:
        import apex.amp  # noqa: F401
    except ImportError:
        return False
    return True


def _through_torch(context: PyTorchTrialContext, models: Any, opt_level: str) -> None:
    if opt_level not in ("O0", "O1"):
        raise InvalidExperimentException(
            f"opt_level {opt_level!r} needs apex on a single rank. Use opt_level='O1', or call "
            "context.experimental.use_amp() before wrapping models."
        )
    logger.warning(
        f"apex is not used: opt_level {opt_level} runs through torch's own mixed precision."
    )
    if opt_level == "O1":
        for model in models if isinstance(models, (list, tuple)) else [models]:
            autocast_forward(inner_module(model), context.device.type, torch.float16)
        context._scale_losses_with(torch.amp.GradScaler(context.device.type))


def _through_apex(models: Any, optimizers: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    import apex.amp

    return apex.amp.initialize(models=models, optimizers=optimizers, **options)  # type: ignore[no-any-return]  # untyped package


def check_once_per_batch(last_batch_idx: int | None, batch_idx: int | None) -> None:
    """Refuse a second backward pass in a batch, which apex cannot scale."""
    if last_batch_idx == batch_idx:
        raise InvalidExperimentException(
            "With apex, call context.backward once per batch; use_amp has no such limit."
        )


def backward(
    optimizers: list[Optimizer],
    loss: torch.Tensor,
    gradient: torch.Tensor | None,
    retain_graph: bool,
    create_graph: bool,
) -> None:
    """Compute scaled gradients."""
    import apex.amp

    with apex.amp.scale_loss(loss, optimizers, loss_id=0) as scaled:
        scaled.backward(gradient=gradient, retain_graph=retain_graph, create_graph=create_graph)


def master_params(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the full-precision parameters that apex updates."""
    import apex.amp

    return list(apex.amp.master_params(optimizer))


def state_dict() -> dict[str, Any]:
    """Return apex's loss-scaler state, for the checkpoint."""
    import apex.amp

    return apex.amp.state_dict()  # type: ignore[no-any-return]  # untyped package


def load_state_dict(state: dict[str, Any]) -> None:
    """Restore apex's loss-scaler state."""
    import apex.amp

    apex.amp.load_state_dict(state)
