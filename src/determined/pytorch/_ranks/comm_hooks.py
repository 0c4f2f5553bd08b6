"""What the communication hooks of DDP keep, on each rank, saved and restored."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logger = logging.getLogger("determined.pytorch")

# What changes while it is used; the rest is what the trial made it with.
_OF_POWER_SGD = (
    "iter",
    "error_dict",
    "p_memory_dict",
    "q_memory_dict",
    "total_numel_before_compression",
    "total_numel_after_compression",
    "next_stats_report",
)


def hook_states(models: Sequence[nn.Module]) -> list[list[Any]]:
    """Return what the hooks of each model keep, or an empty list if none keeps anything."""
    states = [[_saved(state) for _, state in _hooks(model)] for model in models]
    return states if any(s is not None for of_model in states for s in of_model) else []


def restore_hook_states(models: Sequence[nn.Module], saved: Sequence[Sequence[Any]]) -> None:
    """Give hooks back what `hook_states` returned."""
    for model, of_model in zip(models, saved, strict=False):
        for (_, state), values in zip(_hooks(model), of_model, strict=False):
            if values is not None:
                _restore(state, values, next(model.parameters()).device)


def forgetful_hooks(models: Sequence[nn.Module]) -> list[str]:
    """Describe hooks with a state that cannot be saved."""
    return [
        f"{getattr(hook, '__qualname__', hook)} of model {index}, with a {type(state).__qualname__}"
        for index, model in enumerate(models)
        for hook, state in _hooks(model)
        if not isinstance(state, (type(None), dist.ProcessGroup)) and _saved(state) is None
    ]


def _hooks(model: nn.Module) -> Iterator[tuple[Any, Any]]:
    if isinstance(model, DistributedDataParallel):
        yield from model._comm_hooks


def _saved(state: Any) -> Any:
    if _has_methods(state):
        return state.state_dict()
    if _is_power_sgd(state):
        values = {name: getattr(state, name) for name in _OF_POWER_SGD}
        return {**values, "rng": state.rng.get_state()}
    return None


def _restore(state: Any, values: Any, device: torch.device) -> None:
    if _has_methods(state):
        state.load_state_dict(values)
    elif _is_power_sgd(state) and isinstance(values, Mapping):
        state.rng.set_state(values["rng"])
        for name in _OF_POWER_SGD:
            setattr(state, name, _copied(values[name], device))


def _copied(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, copy=True)
    return {k: _copied(v, device) for k, v in value.items()} if isinstance(value, dict) else value


def _has_methods(state: Any) -> bool:
    return hasattr(state, "state_dict") and hasattr(state, "load_state_dict")


def _is_power_sgd(state: Any) -> bool:
    kind = type(state)
    return kind.__name__ == "PowerSGDState" and kind.__module__.startswith("torch.")
