"""What training changes of a module beside its `state_dict`: flags, modes, unsaved buffers.

Only what differs from the module as the trial built it is saved, so a script that was edited in the
meantime, to freeze a layer say, has its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from determined.pytorch._ranks.ddp import inner_module

_FLAGS, _MODES, _BUFFERS = "requires_grad", "training", "buffers"


class AsBuilt:
    """Models as the trial built them, before anything was trained or restored."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._facts = [_facts(inner_module(model)) for model in models]
        for facts in self._facts:
            buffers = facts[_BUFFERS]
            buffers.update({n: b if b is None else b.detach().clone() for n, b in buffers.items()})

    def changes(self, models: Sequence[nn.Module]) -> list[dict[str, dict[str, Any]]]:
        """Return for each model what is not as it was built; empty where nothing is."""
        return [
            _changed(_facts(inner_module(model)), facts)
            for model, facts in zip(models, self._facts, strict=False)
        ]


def restore_changes(models: Sequence[nn.Module], saved: Sequence[Mapping[str, Any]]) -> None:
    """Change models that were just built as `AsBuilt.changes` says."""
    for model, changes in zip(models, saved, strict=False):
        module = inner_module(model)
        for name, parameter in module.named_parameters():
            flag = changes.get(_FLAGS, {}).get(bare_name(name))
            if flag is not None and flag != parameter.requires_grad:
                parameter.requires_grad_(flag)
        for name, part in module.named_modules():
            part.training = changes.get(_MODES, {}).get(bare_name(name), part.training)
        set_buffers(module, changes.get(_BUFFERS, {}))


def set_buffers(module: nn.Module, values: Mapping[str, torch.Tensor | None]) -> None:
    """Give buffers these values; one that has another shape or type now is replaced."""
    for name, holder, key in _buffers_in(module):
        if name not in values:
            continue
        buffer, value = holder[key], values[name]
        if buffer is not None and value is not None and _is_alike(buffer, value):
            buffer.detach().copy_(value)
        else:
            device = _device(module) if buffer is None else buffer.device
            holder[key] = None if value is None else value.to(device, copy=True)


def make_room(module: nn.Module, saved: Mapping[str, Any]) -> None:
    """Replace buffers that training made, or made anew in another shape or kind of number."""
    for name, holder, key in _buffers_in(module, bare=False):
        value, buffer = saved.get(name), holder[key]
        if isinstance(value, torch.Tensor) and (
            buffer is None or _is_of_another_kind(buffer, value)
        ):
            device = _device(module) if buffer is None else buffer.device
            holder[key] = torch.empty_like(value, device=device)


def _is_of_another_kind(buffer: torch.Tensor, value: torch.Tensor) -> bool:
    numbers = [
        (t.is_floating_point(), t.is_complex(), t.dtype == torch.bool) for t in (buffer, value)
    ]
    return buffer.shape != value.shape or numbers[0] != numbers[1]


def _device(module: nn.Module) -> torch.device | None:
    return next((tensor.device for tensor in [*module.parameters(), *module.buffers()]), None)


def bare_name(name: str) -> str:
    """Return a name without what torch.compile puts into it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def _facts(module: nn.Module) -> dict[str, dict[str, Any]]:
    return {
        _FLAGS: {bare_name(name): p.requires_grad for name, p in module.named_parameters()},
        _MODES: {bare_name(name): part.training for name, part in module.named_modules()},
        _BUFFERS: {
            name: holder[key] for name, holder, key in _buffers_in(module, unsaved_only=True)
        },
    }


def _buffers_in(
    module: nn.Module, unsaved_only: bool = False, bare: bool = True
) -> Iterator[tuple[str, dict[str, Any], str]]:
    for prefix, part in module.named_modules():
        for key in part._buffers:
            if not unsaved_only or key in part._non_persistent_buffers_set:
                name = f"{prefix}.{key}" if prefix else key
                yield bare_name(name) if bare else name, part._buffers, key


def _changed(now: dict[str, dict[str, Any]], built: dict[str, dict[str, Any]]) -> dict[str, Any]:
    changes = {
        kind: {name: v for name, v in facts.items() if not _is_same(v, built[kind].get(name))}
        for kind, facts in now.items()
    }
    return {kind: changed for kind, changed in changes.items() if changed}


def _is_same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return _is_alike(a, b) and torch.equal(a, b)
    return a is b if a is None or b is None else not isinstance(a, torch.Tensor) and a == b


def _is_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype
