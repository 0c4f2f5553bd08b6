"""What a run came to, as one flat dictionary, and what differs between two of them."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from tests.exactness.parts.optimizers import Scaled
from tests.exactness.recipe import RecipeTrial

Ending = dict[str, str]


def ending_of(trial: RecipeTrial) -> Ending:
    """Everything that the law of exactness names, but the rows."""
    context = trial.context
    state: dict[str, Any] = {}
    for index, model in enumerate(context.models):
        module: Any = getattr(model, "module", model)
        # DDP replaces them by the chief's before they are used.
        is_scratch = isinstance(model, DistributedDataParallel) and context.distributed.rank > 0
        buffers = {} if is_scratch else dict(module.named_buffers())
        state[f"model {index}"] = {
            "weights": dict(module.named_parameters()),
            "buffers": buffers,
            "state_dict": {} if is_scratch else dict(module.state_dict()),
            "requires_grad": {n: p.requires_grad for n, p in module.named_parameters()},
            "is training": {n: m.training for n, m in module.named_modules()},
        }
    for index, optimizer in enumerate(context.optimizers):
        groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        state[f"optimizer {index}"] = {
            "groups": groups,
            "state": [dict(optimizer.state.get(p, {})) for p in parameters],
            "state_dict": optimizer.state_dict(),
            "gradients": [p.grad for p in parameters],
        }
    for index, scheduler in enumerate(context.lr_schedulers):
        state[f"scheduler {index}"] = scheduler.state_dict()
    if trial.scaler is not None:
        state["scaler"] = trial.scaler.state_dict()
    state["callbacks"] = {name: c.state_dict() for name, c in trial.used_callbacks.items()}
    state["random state"] = {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(legacy=True),
        "Python": random.getstate(),
    }
    if (accelerator := torch.accelerator.current_accelerator()) is not None:
        device = torch.get_device_module(accelerator)
        state["random state"]["device"] = device.get_rng_state_all()
    return dict(_leaves("", state))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        yield path + ":type", type(value).__name__
        for key, entry in value.items():
            yield from _leaves(f"{path}.{key}".lstrip("."), entry)
    elif isinstance(value, Scaled):
        yield path + ":type", type(value).__name__
        yield from _leaves(path, {"codes": value.codes, "scale": value.scale})
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield path + ":type", type(value).__name__
        yield from _leaves(path, vars(value))
    elif isinstance(value, (list, tuple, deque)) and not _is_long(value):
        kind = type(value).__name__
        yield path + ":type", kind + str(value.maxlen if isinstance(value, deque) else "")
        for index, entry in enumerate(value):
            yield from _leaves(f"{path}[{index}]", entry)
    else:
        yield path, _shown(value)


def _is_long(value: Any) -> bool:
    return len(value) > 20 and all(isinstance(entry, (int, float)) for entry in value)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        raw = value.contiguous().flatten().view(torch.uint8) if value.numel() else value
        numbers = value.flatten()[:2].tolist() if value.numel() < 100 else ""
        return f"{value.dtype} {tuple(value.shape)} {numbers} {_hash(raw.numpy().tobytes())}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {_hash(value.tobytes())}"
    if callable(value) and not isinstance(value, type):
        return getattr(value, "__qualname__", type(value).__name__)
    text = repr(sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value)
    return text if len(text) < 80 else _hash(text.encode())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def differences(expected: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Name what differs, with both values, the first few."""
    names = [n for n in expected if found.get(n) != expected[n]] + [
        n for n in found if n not in expected
    ]
    shown = [
        f"{name}: {found.get(name, 'nothing')}, without faults {expected.get(name, 'nothing')}"
        for name in names[:8]
    ]
    return shown + ([f"and {len(names) - 8} more"] if len(names) > 8 else [])
