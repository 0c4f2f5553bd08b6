"""Gradients as an optimizer is about to use them: how large, and whether they are finite."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from determined.pytorch._ranks.fsdp import is_dtensor, local_part


def gradients_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the gradients that there are; of sparse ones their values."""
    gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
    return [g._values() if g.is_sparse else g for g in gradients if g is not None]


def norm_of(optimizer: Optimizer) -> torch.Tensor | None:
    """Return the norm of all gradients on their device, or None if there are none.

    Call it from a pre-step hook, on all ranks if the model is sharded. Fused optimizers get their
    gradients still multiplied by the loss scale; it is taken out here.
    """
    gradients = gradients_of(optimizer)
    if not gradients:
        return None
    norm = get_total_norm(gradients)
    if is_dtensor(norm):
        norm = norm.full_tensor()
    scale = getattr(optimizer, "grad_scale", None)
    return norm if scale is None else norm / scale.to(norm.device)


def are_finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Say whether no number that this rank holds is NaN or infinite. Waits for the device once."""
    parts = [part for tensor in tensors for part in _plain_parts(local_part(tensor.detach()))]
    numbers = [part for part in parts if part.is_floating_point() and part.numel()]
    # The largest magnitude: unlike the Euclidean norm it cannot overflow by itself.
    return not numbers or bool(get_total_norm(numbers, math.inf).isfinite())


def _plain_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return what a tensor is made of: one like torchao's may not compute a norm itself."""
    if not is_traceable_wrapper_subclass(tensor):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in _plain_parts(getattr(tensor, name))]
