"""Automatic mixed precision: autocast around a model's forward pass."""

from __future__ import annotations

import copy
import logging
from typing import Any

import torch
from torch import nn

logger = logging.getLogger("determined.pytorch")


def autocast_forward(model: nn.Module, device_type: str, dtype: torch.dtype) -> nn.Module:
    """Make `model.forward` run under autocast and return full-precision outputs.

    The model keeps its identity and its attributes: only its class becomes a subclass of the one it
    had, so copies, `state_dict` keys and `isinstance` behave as before.
    """
    base = type(model)
    warned: set[type] = set()

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device_type, dtype=dtype):
            output = base.forward(self, *args, **kwargs)
        return _full_precision(output, warned)

    model.__class__ = type(
        base.__name__, (base,), {"forward": forward, "__module__": base.__module__}
    )
    return model


def _full_precision(output: Any, warned: set[type] | None) -> Any:
    """Cast tensors in containers; warn of other outputs, but not of those that come along.

    What stands beside tensors, such as the cache of keys and values of a model that generates, goes
    into the next pass as it is.
    """
    if isinstance(output, torch.Tensor):
        return output.float() if output.dtype in (torch.float16, torch.bfloat16) else output
    if isinstance(output, (dict, list, tuple)):
        values = list(output.values() if isinstance(output, dict) else output)
        beside = None if any(isinstance(value, torch.Tensor) for value in values) else warned
        values = [_full_precision(value, beside) for value in values]
        if isinstance(output, dict):
            rebuilt = copy.copy(output)  # with attributes, such as those of Hugging Face's outputs
            for key, value in zip(output, values, strict=True):
                rebuilt[key] = value
            return rebuilt
        return type(output)(*values) if hasattr(output, "_fields") else type(output)(values)
    if output is not None and warned is not None and type(output) not in warned:
        warned.add(type(output))
        logger.warning(
            f"Outputs of type {type(output).__name__} are not cast to float32 under automatic "
            "mixed precision."
        )
    return output
