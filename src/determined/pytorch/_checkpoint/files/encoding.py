"""States as plain values, which torch's restricted reader reads; `decoding` makes them again.

That reader knows dictionaries, lists, tuples, sets, numbers, text and tensors, but no subclass of
them. Everything else is written as a dictionary with a tag: what it is, of which class, made of
what. Functions, optimizers and schedulers in a state are not written: those that the program has in
the same place when it loads the state are taken.
"""

from __future__ import annotations

import collections
import copyreg
import enum
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from determined.pytorch._checkpoint.files.numpy_pickle import KINDS
from determined.pytorch._checkpoint.state.containers import (
    BASES,
    IMMUTABLE,
    MAPPINGS,
    Parts,
    empty,
    fill,
    make,
    take_apart,
)
from determined.pytorch._checkpoint.state.copying import Path, is_made_of_tensors
from determined.pytorch._ranks.fsdp import is_dtensor

TAG = "determined.object"

# What the restricted reader makes by itself.
PLAIN = frozenset(
    {bool, float, complex, str, bytes, bytearray, type(None), torch.Size}
    | {torch.dtype, torch.device, torch.layout}
)
READ_AS_THEY_ARE = (dict, list, tuple, set, collections.OrderedDict, collections.Counter)
_LONGEST_INT = 1 << 2032  # it reads integers of up to 255 bytes
CONSTANTS = {
    "Ellipsis": ...,
    "NotImplemented": NotImplemented,
    **{str(c): c for c in vars(torch).values() if isinstance(c, torch.memory_format)},
}
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def class_name(kind: Any) -> str:
    """Return how files name a class or function."""
    return f"{kind.__module__}:{getattr(kind, '__qualname__', type(kind).__qualname__)}"


class Living:
    """What a state of the running program has that a file cannot give back.

    These are functions, optimizers and schedulers, which are not written, and classes that are
    defined inside of a function (`kinds`), which cannot be found by their name.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, type] = {}
        self._by_path: dict[Path, Any] = {}
        self._by_name: dict[str, list[Any]] = {}

    def add(self, value: Any, name: str, path: Path) -> None:
        self._by_path[path] = value
        self._by_name.setdefault(name, []).append(value)

    def find(self, name: str, path: Path) -> Any:
        """Return the one in the same place, or else the only one of that name; or None."""
        candidates = self._by_name.get(name, [])
        here = self._by_path.get(path)
        if any(here is candidate for candidate in candidates):
            return here
        return candidates[0] if len({id(value) for value in candidates}) == 1 else None


def living_in(state: Any) -> Living:
    """Return what a state of the running program has that a file cannot give back."""
    encoder = _Encoder()
    encoder.of(state, ())
    return encoder.living


def classes_in(plain: Any) -> set[str]:
    """Return the names of all classes that a state from `to_plain` needs."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting = [plain]
    while waiting:
        value = waiting.pop()
        if not isinstance(value, (dict, list, tuple)) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            if value.get(TAG) not in (None, "function", "stateful") and "class" in value:
                found.add(value["class"])
            waiting += value.values()
        else:
            waiting += value
    return found


def to_plain(state: Any) -> Any:
    """Return a state that the restricted reader reads; its tensors are those of the state.

    What has no such form stays as it is: only a reader that trusts the whole file makes it again.
    """
    return _Encoder().of(state, ())


class _Encoder:
    def __init__(self) -> None:
        self.living = Living()
        self._encoded: dict[int, Any] = {}
        self._originals: list[Any] = []  # kept, so that no other object gets the same identity

    def of(self, value: Any, path: Path) -> Any:
        kind = type(value)
        if kind in PLAIN or (kind is int and -_LONGEST_INT < value < _LONGEST_INT):
            return value
        key = id(value)
        if key in self._encoded:
            return self._encoded[key]
        if kind is dict and TAG not in value and all(type(k) in (str, int) for k in value):
            new: dict[Any, Any] = self._remember(value, {})
            for name, entry in value.items():
                new[name] = self.of(entry, (*path, name))
            return new
        if isinstance(value, torch.Tensor):
            return self._remember(value, self._tensor(value, path))
        if isinstance(value, (np.ndarray, np.generic, np.dtype)):
            return self._remember(value, self._numpy(value, path))
        for special, encode in _SPECIAL:
            if isinstance(value, special) and (special is not int or kind is int):
                return self._remember(value, encode(self, value, path))
        parts = take_apart(value)
        if parts is None:
            return self._reduced(value, path)
        return self._container(value, parts, path)

    def _remember(self, value: Any, new: Any) -> Any:
        self._encoded[id(value)] = new
        self._originals.append(value)
        return new

    def _class(self, kind: type) -> str:
        name = class_name(kind)
        if "<locals>" in name:
            self.living.kinds[name] = kind
        return name

    def _container(self, value: Any, parts: Parts, path: Path) -> Any:
        if parts.kind in READ_AS_THEY_ARE and not _needs_tag(parts):
            return self._same_container(value, parts, path)
        tagged: dict[str, Any] = self._remember(value, {TAG: parts.base})
        if parts.kind is not BASES[parts.base]:
            tagged["class"] = self._class(parts.kind)
        replace_parts(parts, path, self.of)
        for name in ("entries", "setting", "attributes", "slots"):
            if getattr(parts, name) not in (None, [], {}):
                tagged[name] = getattr(parts, name)
        return tagged

    def _same_container(self, value: Any, parts: Parts, path: Path) -> Any:
        if parts.base in IMMUTABLE:
            replace_parts(parts, path, self.of)
            return self._encoded.get(id(value)) or self._remember(value, make(parts))
        new = self._remember(value, empty(parts.base, parts.kind))
        replace_parts(parts, path, self.of)
        return fill(new, parts)

    def _reduced(self, value: Any, path: Path) -> Any:
        """Write an object in the form in which its class says how to make it again."""
        try:
            made = _how_to_make(value)
        except Exception:  # it cannot be pickled; torch.save will say so
            made = None
        if made is None:
            return value
        tagged: dict[str, Any] = self._remember(value, {TAG: "made"})
        tagged["class"] = self._class(made.pop("class"))
        for name, part in made.items():
            tagged[name] = self.of(part, (*path, name))
        return tagged

    def _tensor(self, tensor: torch.Tensor, path: Path) -> Any:
        kind = type(tensor)
        if kind in (torch.Tensor, nn.Parameter) or is_dtensor(tensor):
            return tensor
        tagged: dict[str, Any] = {TAG: "tensor", "class": self._class(kind)}
        if is_made_of_tensors(tensor):
            names, settings = tensor.__tensor_flatten__()  # type: ignore[attr-defined]  # just checked
            parts = {name: self.of(getattr(tensor, name), (*path, name)) for name in names}
            tagged["parts"], tagged["settings"] = parts, self.of(settings, (*path, "settings"))
            tagged["size"], tagged["stride"] = tuple(tensor.size()), tensor.stride()
            tagged["requires_grad"] = tensor.requires_grad
        else:
            tagged["tensor"] = tensor.as_subclass(torch.Tensor)
            tagged["attributes"] = self.of(dict(tensor.__dict__), (*path, "attributes"))
        return tagged

    def _numpy(self, value: Any, path: Path) -> Any:
        if isinstance(value, np.dtype):
            return {TAG: "numpy dtype", "code": value.str} if value.kind in KINDS + "mM" else value
        if isinstance(value, np.generic):
            is_plain = value.dtype.kind in KINDS
            return value if is_plain else {TAG: "numpy number", "of": self._array(value, path)}
        return self._array(value, path) if type(value) is np.ndarray else value

    def _array(self, value: Any, path: Path) -> Any:
        array = np.asarray(value)
        if array.dtype.kind in KINDS:
            return array
        if array.dtype.kind in "mM":  # times
            return {TAG: "numpy", "code": array.dtype.str, "data": array.view(np.int64)}
        if array.dtype.kind == "O":
            tagged: dict[str, Any] = self._remember(value, {TAG: "numpy objects"})
            tagged["shape"] = array.shape
            tagged["entries"] = [self.of(e, (*path, i)) for i, e in enumerate(array.flat)]
            return tagged
        return value

    def _function(self, value: Any, path: Path) -> Any:
        self.living.add(value, class_name(value), path)
        return {TAG: "function", "class": class_name(value)}

    def _stateful(self, value: Any, path: Path) -> Any:
        self.living.add(value, class_name(type(value)), path)
        tagged = self._remember(value, {TAG: "stateful", "class": class_name(type(value))})
        tagged["state"] = self.of(value.state_dict(), (*path, "state"))
        return tagged

    def _generator(self, value: Any, path: Path) -> Any:
        if isinstance(value, torch.Generator):
            state: Any = value.get_state()
            return {TAG: "generator", "of": "torch", "device": str(value.device), "state": state}
        if isinstance(value, np.random.Generator):
            bits = value.bit_generator
            return {TAG: "generator", "of": type(bits).__name__, "state": self.of(bits.state, path)}
        return {
            TAG: "generator",
            "of": "RandomState",
            "state": self.of(value.get_state(legacy=False), path),
        }


_SPECIAL: list[tuple[Any, Callable[[_Encoder, Any, Path], Any]]] = [
    (
        (torch.memory_format, type(...), type(NotImplemented)),
        lambda _, value, path: {TAG: "constant", "name": str(value)},
    ),
    (int, lambda _, value, path: {TAG: "int", "text": hex(value)}),
    (type, lambda encoder, value, _: {TAG: "class", "class": encoder._class(value)}),
    (_FUNCTIONS, _Encoder._function),
    ((Optimizer, LRScheduler), _Encoder._stateful),
    ((torch.Generator, np.random.Generator, np.random.RandomState), _Encoder._generator),
]


def _needs_tag(parts: Parts) -> bool:
    if parts.attributes and parts.kind is not collections.OrderedDict:
        return True
    if parts.base in MAPPINGS:
        return TAG in parts.entries[::2] or not all(map(_is_plain_key, parts.entries[::2]))
    return parts.base == "set" and not all(map(_is_plain_key, parts.entries))


def _is_plain_key(key: Any) -> bool:
    if type(key) is tuple:
        return all(map(_is_plain_key, key))
    return type(key) is int or (type(key) in PLAIN and type(key) is not bytearray)


def step_of(key: Any, index: int) -> Any:
    return key if _is_plain_key(key) else index


def _how_to_make(value: Any) -> dict[str, Any] | None:
    """Return how pickle would have an object made, None unless by its class."""
    if isinstance(value, enum.Enum):
        return {**_CALL, "class": type(value), "arguments": (value._value_,)}
    reduce = copyreg.dispatch_table.get(type(value))
    reduced = value.__reduce_ex__(2) if reduce is None else reduce(value)
    if not isinstance(reduced, tuple) or len(reduced) > 5:
        return None
    function, arguments, state, entries, items = [*reduced, None, None, None][:5]
    keywords: dict[str, Any] = {}
    is_new = function in (copyreg.__newobj__, copyreg.__newobj_ex__)  # type: ignore[attr-defined]  # as pickle has it
    if is_new and function is copyreg.__newobj__:  # type: ignore[attr-defined]  # as pickle has it
        function, arguments = arguments[0], tuple(arguments[1:])
    elif is_new:
        function, arguments, keywords = arguments
    if not isinstance(function, type):
        return None
    return {
        **_CALL,
        "class": function,
        "is_new": is_new,
        "arguments": tuple(arguments),
        "keywords": keywords,
        "state": state,
        "entries": None if entries is None else list(entries),
        "items": None if items is None else [part for item in items for part in item],
    }


_CALL: dict[str, Any] = {
    "is_new": False,
    "keywords": {},
    "state": None,
    "entries": None,
    "items": None,
}


def replace_parts(parts: Parts, path: Path, replace: Callable[[Any, Path], Any]) -> None:
    """Put something else in the place of everything inside a container."""
    entries = parts.entries
    if parts.base in MAPPINGS:
        for index in range(0, len(entries), 2):
            step = step_of(entries[index], index)
            entries[index] = replace(entries[index], (*path, "key", step))
            entries[index + 1] = replace(entries[index + 1], (*path, step))
    else:
        entries[:] = [replace(entry, (*path, index)) for index, entry in enumerate(entries)]
    parts.setting = replace(parts.setting, (*path, "setting"))
    for attributes in (parts.attributes, parts.slots):
        for name, value in attributes.items():
            attributes[name] = replace(value, (*path, f".{name}"))
