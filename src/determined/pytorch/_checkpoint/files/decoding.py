"""States from the plain values that `encoding` wrote, with objects of trusted classes only.

Containers and most objects are made without any method of their class, see `containers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from determined.pytorch._checkpoint.files.encoding import (
    CONSTANTS,
    PLAIN,
    READ_AS_THEY_ARE,
    TAG,
    Living,
    class_name,
    replace_parts,
)
from determined.pytorch._checkpoint.files.numpy_pickle import KINDS
from determined.pytorch._checkpoint.files.trust import NEVER_CALLED, Trust
from determined.pytorch._checkpoint.state.containers import (
    BASES,
    IMMUTABLE,
    Parts,
    base_of,
    empty,
    fill,
    make,
    slot_names,
    take_apart,
)
from determined.pytorch._checkpoint.state.copying import Path
from determined.pytorch._checkpoint.state.numpy_states import checked


def from_plain(
    value: Any,
    trust: Trust,
    living: Callable[[], Living] = Living,
) -> Any:
    """Return the state that `to_plain` wrote.

    `living` is asked at most once, if the state has functions, optimizers or schedulers.

    Raises:
        NotTrustedError: objects of some classes may not be made.
    """
    decoder = _Decoder(trust, living)
    try:
        state = decoder.of(value, ())
    except Exception:
        if decoder.refused or decoder.missing:  # what stands in their place does not fit
            raise NotTrustedError(decoder.refused, decoder.missing) from None
        raise
    if decoder.refused or decoder.missing:
        raise NotTrustedError(decoder.refused, decoder.missing)
    return state


class NotTrustedError(Exception):
    """A state has objects of classes that may not be made, or what the program no longer has."""

    def __init__(self, classes: dict[str, None], missing: dict[str, None]) -> None:
        super().__init__(", ".join([*classes, *missing]))
        self.classes = list(classes)
        self.missing = list(missing)


class _Decoder:
    def __init__(self, trust: Trust, living: Callable[[], Living]) -> None:
        self._trust = trust
        self._ask_living = living
        self._living: Living | None = None
        self._decoded: dict[int, Any] = {}
        self._originals: list[Any] = []
        self.refused: dict[str, None] = {}
        self.missing: dict[str, None] = {}

    def of(self, value: Any, path: Path) -> Any:
        kind = type(value)
        if kind in PLAIN or kind is int or isinstance(value, torch.Tensor):
            return value
        key = id(value)
        if key in self._decoded:
            return self._decoded[key]
        if kind is dict and TAG in value:
            return self._tagged(value, path)
        if kind is dict:
            self._remember(value, value)
            for name, entry in value.items():
                value[name] = self.of(entry, (*path, name))
            return value
        if kind not in READ_AS_THEY_ARE or kind is set:
            return value
        parts = take_apart(value)
        assert parts is not None, "a container that torch itself makes"
        if parts.base in IMMUTABLE:
            replace_parts(parts, path, self.of)
            return self._decoded.get(key) or self._remember(value, make(parts))
        self._remember(value, value)
        replace_parts(parts, path, self.of)
        if kind is list:
            value.clear()
        return fill(value, parts)

    def _remember(self, value: Any, new: Any) -> Any:
        self._decoded[id(value)] = new
        self._originals.append(value)
        return new

    def _tagged(self, value: dict[str, Any], path: Path) -> Any:
        tag = value[TAG]
        if tag in BASES:
            return self._container(value, path)
        decode = _DECODERS.get(tag)
        if decode is None:
            raise ValueError(f"it holds a {str(tag)[:50]!r}, which this release does not know")
        return decode(self, value, path)

    def _class(self, name: str) -> Any:
        kind = self._trust.find(name)
        if kind is None and "<locals>" in name:
            local = self._program().kinds.get(name)
            kind = local if local is not None and self._trust.allows(local) else None
        if kind is None:
            self.refused[name[:200]] = None
        return kind

    def _container(self, value: dict[str, Any], path: Path) -> Any:
        base = value[TAG]
        kind = self._class(value["class"]) if "class" in value else BASES[base]
        parts = Parts(
            base,
            kind,
            list(value.get("entries", ())),
            value.get("setting"),
            dict(value.get("attributes", {})),
            dict(value.get("slots", {})),
        )
        if kind is None:
            self._remember(value, None)
            replace_parts(parts, path, self.of)  # to name all that is refused
            return None
        if base_of(kind) != base:
            raise ValueError(f"{class_name(kind)} is not a {base}")
        if unknown := parts.slots.keys() - slot_names(kind):
            raise ValueError(f"{class_name(kind)} has no slots {sorted(map(str, unknown))[:5]}")
        if base in IMMUTABLE:
            replace_parts(parts, path, self.of)
            return self._decoded.get(id(value)) or self._remember(value, make(parts))
        new = self._remember(value, empty(base, kind))
        replace_parts(parts, path, self.of)
        return fill(new, parts)

    def _made(self, value: dict[str, Any], path: Path) -> Any:
        kind = self._class(value["class"])
        arguments = self.of(value["arguments"], (*path, "arguments"))
        keywords = self.of(value["keywords"], (*path, "keywords"))
        if kind is None:
            for name in ("state", "entries", "items"):  # name all that is refused
                self.of(value[name], (*path, name))
            return None
        is_layer = issubclass(kind, nn.Module) and not value["is_new"]  # its arguments are sizes
        if kind in NEVER_CALLED or is_layer:
            raise ValueError(f"it has a {kind.__name__} made by a call")
        new = kind.__new__(kind, *arguments, **keywords) if value["is_new"] else kind(*arguments)
        self._remember(value, new)
        self._set_state(new, self.of(value["state"], (*path, "state")))
        for entry in self.of(value["entries"], (*path, "entries")) or ():
            new.append(entry)
        items = self.of(value["items"], (*path, "items")) or []
        for key, entry in zip(items[::2], items[1::2], strict=True):
            new[key] = entry
        return new

    def _set_state(self, new: Any, state: Any) -> None:
        """Do what pickle does with a state."""
        if state is None:
            return
        if hasattr(new, "__setstate__"):
            new.__setstate__(state)
            return
        slots: dict[str, Any] = {}
        if isinstance(state, tuple) and len(state) == 2:
            state, slots = state
        for name, entry in (state or {}).items():
            new.__dict__[name] = entry
        for name, entry in (slots or {}).items():
            object.__setattr__(new, name, entry)

    def _tensor(self, value: dict[str, Any], path: Path) -> Any:
        kind = self._class(value["class"])
        if kind is None:
            return None
        if "parts" not in value:
            new = value["tensor"].as_subclass(kind)
            new.__dict__.update(self.of(value["attributes"], (*path, "attributes")))
            return self._remember(value, new)
        parts = {name: self.of(part, (*path, name)) for name, part in value["parts"].items()}
        settings = self.of(value["settings"], (*path, "settings"))
        size, stride = torch.Size(value["size"]), tuple(value["stride"])
        new = kind.__tensor_unflatten__(parts, settings, size, stride)
        return self._remember(value, new.requires_grad_(value["requires_grad"]))

    def _program(self) -> Living:
        if self._living is None:
            self._living = self._ask_living()
        return self._living

    def _from_program(self, value: dict[str, Any], path: Path) -> Any:
        found = self._program().find(value["class"], path)
        if found is None:
            self.missing[value["class"]] = None
        elif value[TAG] == "stateful":
            found.load_state_dict(self.of(value["state"], (*path, "state")))
        return self._remember(value, found)

    def _objects(self, value: dict[str, Any], path: Path) -> Any:
        if math.prod(value["shape"]) != len(value["entries"]):
            raise ValueError(f"{len(value['entries'])} objects for the shape {value['shape']}")
        array = self._remember(value, np.empty(value["shape"], dtype=object))
        for index, entry in enumerate(value["entries"]):
            array.flat[index] = self.of(entry, (*path, index))
        return array

    def _generator(self, value: dict[str, Any], path: Path) -> Any:
        state = self.of(value["state"], path)
        if value["of"] == "torch":
            generator = torch.Generator(value["device"])
            return self._remember(value, generator.set_state(state))
        if value["of"] == "RandomState":
            legacy = np.random.RandomState()
            legacy.set_state(checked(state))
            return self._remember(value, legacy)
        if value["of"] not in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"):
            raise ValueError(f"numpy has no generator {str(value['of'])[:50]!r}")
        bits = getattr(np.random, value["of"])()
        bits.state = checked(state)
        return self._remember(value, np.random.Generator(bits))


def _times(code: str, data: Any) -> Any:
    dtype = np.dtype(code)
    if dtype.kind not in "mM":
        raise ValueError(f"{code!r} is no type of times")
    return data.view(dtype)


def _dtype(code: str) -> Any:
    dtype = np.dtype(code)
    if dtype.kind not in KINDS + "mM":
        raise ValueError(f"numpy data of type {code!r} is not read")
    return dtype


_DECODERS: dict[str, Callable[[_Decoder, dict[str, Any], Path], Any]] = {
    "class": lambda decoder, value, _: decoder._class(value["class"]),
    "made": _Decoder._made,
    "tensor": _Decoder._tensor,
    "function": _Decoder._from_program,
    "stateful": _Decoder._from_program,
    "generator": _Decoder._generator,
    "constant": lambda decoder, value, _: CONSTANTS[value["name"]],
    "int": lambda decoder, value, _: int(value["text"], 16),
    "numpy": lambda decoder, value, _: _times(value["code"], value["data"]),
    "numpy dtype": lambda decoder, value, _: _dtype(value["code"]),
    "numpy number": lambda decoder, value, path: decoder.of(value["of"], path)[()],
    "numpy objects": _Decoder._objects,
}
