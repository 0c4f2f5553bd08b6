"""Copy a state as it is: equal, of the same types, sharing what it shared, nothing of the original.

This is the only copy of states that there is: for saving in the background, for loading from files
that stay mapped, for taking split tensors out and putting them back in.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from determined.pytorch._checkpoint.state.containers import (
    IMMUTABLE,
    MAPPINGS,
    Parts,
    empty,
    fill,
    make,
    take_apart,
)

# The steps that lead to a value: keys, positions, and names of attributes.
Path = tuple[Any, ...]
Replace = Callable[[Any, Path], Any]

ATOMS = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type, range, slice}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size}
    | {types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType}
)
# Parts of the running program, no part of its state: `encoding` writes them with theirs.
_LIVING = (Optimizer, LRScheduler)


def copy_state(state: Any, replace: Replace | None = None) -> Any:
    """Return a copy of nested containers and objects, and of the tensors in them.

    `replace` is asked for each tensor and each plain dictionary, with the steps that lead to it. It
    returns what takes its place, and a dictionary that is to be copied as any other as it is.
    """
    return _Copy(replace or _new_storages()).of(state, ())


def _new_storages() -> Replace:
    memo: dict[int, Any] = {}
    return lambda value, _: copy_tensor(value, memo) if isinstance(value, torch.Tensor) else value


def copy_tensor(tensor: torch.Tensor, memo: dict[int, Any] | None = None) -> torch.Tensor:
    """Copy a tensor of any kind; views of one storage still share one if they share `memo`."""
    if is_made_of_tensors(tensor):
        return remake(tensor, lambda part, _: copy_tensor(part, memo))
    if not tensor.is_leaf:  # torch copies only what has no history
        tensor = tensor.detach().requires_grad_()
    new: torch.Tensor = copy.deepcopy(tensor, memo)
    new.grad = None  # no part of a state: torch.save leaves it out, too
    return new


def is_made_of_tensors(tensor: torch.Tensor) -> bool:
    """Say whether a tensor subclass tells which tensors it is made of."""
    kind = type(tensor)
    return kind is not torch.Tensor and all(
        hasattr(kind, name) for name in ("__tensor_flatten__", "__tensor_unflatten__")
    )


def remake(tensor: Any, replace: Callable[[torch.Tensor, str], torch.Tensor]) -> torch.Tensor:
    """Return a tensor of the same subclass, made of other tensors."""
    names, settings = tensor.__tensor_flatten__()
    values = {name: getattr(tensor, name) for name in names}
    parts = {  # a DTensor names its mesh of ranks, too
        name: replace(value, name) if isinstance(value, torch.Tensor) else value
        for name, value in values.items()
    }
    unflatten = type(tensor).__tensor_unflatten__
    new: torch.Tensor = unflatten(parts, settings, tensor.size(), tensor.stride())
    return new.requires_grad_(tensor.requires_grad)


class _Copy:
    """One copy of one state."""

    def __init__(self, replace: Replace) -> None:
        self._replace = replace
        self._copied: dict[int, Any] = {}  # by identity, so that what is shared stays shared
        self._originals: list[Any] = []  # kept, so that no other object gets the same identity

    def of(self, value: Any, path: Path) -> Any:
        kind = type(value)
        if kind in ATOMS:
            return value
        key = id(value)
        if key in self._copied:
            return self._copied[key]
        if isinstance(value, torch.Tensor):
            return self._remember(value, self._replace(value, path))
        if kind is dict:
            return self._dict(value, path)
        if isinstance(value, _LIVING):
            return value
        parts = take_apart(value)
        if parts is None:
            return self._remember(value, copy.deepcopy(value, self._copied))
        if parts.base in IMMUTABLE:
            self._copy_parts(parts, path)
            # An entry may have led back to it.
            return self._copied.get(key) or self._remember(value, make(parts))
        new = self._remember(value, empty(parts.base, parts.kind))
        self._copy_parts(parts, path)
        return fill(new, parts)

    def _remember(self, value: Any, new: Any) -> Any:
        self._copied[id(value)] = new
        self._originals.append(value)
        return new

    def _dict(self, value: dict[Any, Any], path: Path) -> Any:
        """Copy what most states consist of, by the shortest way."""
        replaced = self._replace(value, path)
        if replaced is not value:
            return self._remember(value, replaced)
        new: dict[Any, Any] = self._remember(value, {})
        for key, entry in value.items():
            new[key if type(key) in ATOMS else self.of(key, path)] = self.of(entry, (*path, key))
        return new

    def _copy_parts(self, parts: Parts, path: Path) -> None:
        entries = parts.entries
        if parts.base in MAPPINGS:
            for index in range(0, len(entries), 2):
                key = entries[index]
                entries[index] = self.of(key, path)
                entries[index + 1] = self.of(entries[index + 1], (*path, key))
        else:
            entries[:] = [self.of(entry, (*path, index)) for index, entry in enumerate(entries)]
        parts.setting = self.of(parts.setting, path)
        for attributes in (parts.attributes, parts.slots):
            for name, value in attributes.items():
                attributes[name] = self.of(value, (*path, f".{name}"))
