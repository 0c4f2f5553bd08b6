"""Models on many ranks: torch's DDP with the manners that trials expect."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class _DDP(DistributedDataParallel):
    """DDP whose attributes fall through to the module, so that `self.model.fc` keeps working."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


def distribute(model: nn.Module, device: torch.device, options: dict[str, Any]) -> nn.Module:
    """Wrap a model for training on all ranks; a frozen one is only made equal on them."""
    if any(p.requires_grad for p in model.parameters()):
        device_ids = None if device.type == "cpu" else [device]
        return _DDP(model, device_ids=device_ids, **options)
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), src=0)
    return model


def set_gradient_sync(models: list[nn.Module], enabled: bool) -> None:
    """Choose whether the next forward and backward passes average gradients over ranks.

    DDP decides at forward time, so this must be called before it.
    """
    for model in models:
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = enabled


def forbid_buffer_broadcast(models: list[nn.Module]) -> None:
    """Let a forward pass without gradients run on one rank alone.

    DDP would broadcast buffers on the first one, and wait for ranks that are not validating.
    Training forward passes switch the broadcast on again by themselves.
    """
    for model in models:
        if isinstance(model, DistributedDataParallel):
            model.require_forward_param_sync = False


def inner_module(model: nn.Module) -> nn.Module:
    """Return the user's own module."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def compress_gradients(models: list[nn.Module], parameters: list[torch.Tensor]) -> None:
    """Send the gradients of these parameters between ranks as float16."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    wanted = {id(p) for p in parameters}
    for model in models:
        if isinstance(model, DistributedDataParallel) and any(
            id(p) in wanted for p in model.parameters()
        ):
            model.register_comm_hook(None, fp16_compress_hook)
