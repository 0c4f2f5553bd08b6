"""Digests of what a run holds: every value by the path to it."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._ranks.ddp import inner_module

# Above this, hashing all state before every batch would take longer than the script.
_LARGEST_STATE_BYTES = 2**28


def digest(value: Any) -> str:
    """Return a short name for a value, the same for equal bits only."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value if value.layout is torch.strided else value.to_dense()).contiguous()
        kind = f"{value.dtype} {tuple(value.shape)}"
        data = value.flatten().view(torch.uint8).numpy().tobytes() if value.numel() else b""
    elif isinstance(value, (np.ndarray, np.generic)):
        kind, data = f"{value.dtype} {value.shape}", value.tobytes()
    elif isinstance(value, (set, frozenset)):
        kind, data = "set", repr(sorted(map(repr, value))).encode()
    else:
        kind, data = "", re.sub(" at 0x[0-9a-f]+", "", repr(value)).encode()
    return hashlib.sha256(kind.encode() + data).hexdigest()[:16]


def leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values inside containers, each with the path to it."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from leaves(f"{path}[{key!r}]", entry)
    elif isinstance(value, (list, tuple, deque)):
        for index, entry in enumerate(value):
            yield from leaves(f"{path}[{index}]", entry)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for name, entry in vars(value).items():
            yield from leaves(f"{path}.{name}", entry)
    else:
        yield path, value


def random_states() -> dict[str, Any]:
    """Return the states of the three global generators."""
    return {
        "the random state of torch": torch.get_rng_state(),
        "the random state of numpy": np.random.get_state(legacy=True),
        "the random state of Python": random.getstate(),
    }


def is_small(context: PyTorchTrialContext) -> bool:
    """Say whether all state can be hashed before every batch."""
    weights = [p for model in context.models for p in model.parameters()]
    return sum(p.nbytes for p in weights) <= _LARGEST_STATE_BYTES


def state_of(
    context: PyTorchTrialContext, callbacks: Mapping[str, PyTorchCallback]
) -> dict[str, Any]:
    """Return what the next batch depends on, besides the data and the random states."""
    values: dict[str, Any] = {}
    for index, model in enumerate(context.models):
        module = inner_module(model)
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            values[f"weight {name} of model {index}"] = tensor
        for name, parameter in module.named_parameters():
            values[f"requires_grad of {name} of model {index}"] = parameter.requires_grad
        for name, submodule in module.named_modules():
            values[f"the mode of {name or 'all'} of model {index}"] = submodule.training
    for index, optimizer in enumerate(context.optimizers):
        values |= leaves(f"optimizer {index}", optimizer.state_dict())
    for index, scheduler in enumerate(context.lr_schedulers):
        values |= leaves(f"scheduler {index}", scheduler.state_dict())
    if context._scaler is not None:
        values |= leaves("the scaler", context._scaler.state_dict())
    for name, callback in callbacks.items():
        values |= leaves(f"callback {name!r}", callback.state_dict())
    return {name: value for name, value in values.items() if not callable(value)}


def unsaved_attributes(trial: object, context: PyTorchTrialContext) -> dict[str, str]:
    """Return digests of what a trial keeps to itself: no checkpoint has it."""
    modules = {id(m) for model in context.models for m in model.modules()}
    wrapped = {*modules, *map(id, context.optimizers), id(context._scaler)}
    wrapped |= {id(scheduler._scheduler) for scheduler in context.lr_schedulers}
    wrapped |= {id(registered.reducer) for registered in context._wrapped_reducers}
    found = {}
    for name, value in vars(trial).items():
        kind = type(value).__name__
        if id(value) in wrapped or value is context:
            continue
        if isinstance(value, (torch.nn.Module, torch.optim.Optimizer)) or _is_scheduler(value):
            what, state = f"self.{name} ({kind}, not wrapped)", value.state_dict()
        elif isinstance(value, (bool, int, float, str, list, dict, tuple, torch.Tensor)):
            what, state = f"self.{name}", value
        elif isinstance(value, (np.ndarray, torch.Generator, np.random.Generator)):
            what, state = f"self.{name}", _state_of(value)
        else:
            continue
        found[what] = digest([f"{path}={digest(leaf)}" for path, leaf in leaves("", state)])
    return found


def _is_scheduler(value: Any) -> bool:
    return isinstance(value, torch.optim.lr_scheduler.LRScheduler)


def _state_of(value: Any) -> Any:
    if isinstance(value, torch.Generator):
        return value.get_state()
    return value.bit_generator.state if isinstance(value, np.random.Generator) else value
