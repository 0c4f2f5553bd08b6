"""Containers and objects, taken apart and put together again without methods of their own class.

Those of a `Counter` add, and those of a user's class may do anything: only the base that holds the
entries is asked.
"""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import functools
from typing import Any

BASES: dict[str, Any] = {
    "defaultdict": collections.defaultdict,
    "OrderedDict": collections.OrderedDict,
    "dict": dict,
    "list": list,
    "deque": collections.deque,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "object": object,
}
MAPPINGS = ("dict", "OrderedDict", "defaultdict")
# Made with their entries; all others are made empty, so that an entry can lead back to them.
IMMUTABLE = ("tuple", "frozenset")

_PYTHONS_OWN = (*BASES.values(), collections.Counter)
_PROTOCOL = ("__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__", "__deepcopy__")
_FACTORY: Any = vars(collections.defaultdict)["default_factory"]
_MADE_BY_CLASS_STATEMENT = 1 << 9


@dataclasses.dataclass
class Parts:
    """What a container or object consists of: all of it, for what `take_apart` knows.

    `entries` of a mapping are keys and values in turn. `setting` is the factory of a `defaultdict`
    or the longest length of a `deque`. `attributes` are those in `__dict__`.
    """

    base: str
    kind: type
    entries: list[Any] = dataclasses.field(default_factory=list)
    setting: Any = None
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    slots: dict[str, Any] = dataclasses.field(default_factory=dict)


def take_apart(value: Any) -> Parts | None:
    """Return the parts of a container or object, None where its class says how to copy it."""
    kind = type(value)
    base = base_of(kind)  # type: ignore[arg-type]  # a class is hashable
    if base is None:
        return None
    parts = Parts(base, kind)
    if base in MAPPINGS:
        items = BASES["OrderedDict" if base == "OrderedDict" else "dict"].items(value)
        parts.entries = [part for item in items for part in item]
    elif base != "object":
        parts.entries = list(BASES[base].__iter__(value))
    if base == "defaultdict":
        parts.setting = value.default_factory
    elif base == "deque":
        parts.setting = value.maxlen
    if kind is not BASES[base] or base == "OrderedDict":  # a `state_dict` has versions there
        parts.attributes, parts.slots = _attributes(value, kind)
    return parts


@functools.lru_cache(maxsize=1024)
def base_of(kind: type) -> str | None:
    """Return which of `BASES` holds the entries of a class, None for other kinds of classes."""
    if kind in _PYTHONS_OWN and kind is not object:
        return next(name for name, base in BASES.items() if issubclass(kind, base))
    if not kind.__flags__ & _MADE_BY_CLASS_STATEMENT or _has_own_protocol(kind):
        return None
    name = next(name for name, base in BASES.items() if issubclass(kind, base))
    return name if _holds(name, kind) else None


def empty(base: str, kind: type) -> Any:
    """Make a container or object without entries and attributes."""
    return BASES[base].__new__(kind)


def fill(new: Any, parts: Parts) -> Any:
    """Give what `empty` made its entries and attributes."""
    base, entries = parts.base, parts.entries
    if base in MAPPINGS:
        set_item = BASES["OrderedDict" if base == "OrderedDict" else "dict"].__setitem__
        for key, entry in zip(entries[::2], entries[1::2], strict=True):
            set_item(new, key, entry)
    elif base == "list":
        list.extend(new, entries)
    elif base == "set":
        set.update(new, entries)
    elif base == "deque":
        collections.deque.__init__(new, entries, parts.setting)
    if base == "defaultdict":
        _FACTORY.__set__(new, parts.setting)
    return _with_attributes(new, parts)


def make(parts: Parts) -> Any:
    """Make an immutable container with its entries."""
    return _with_attributes(BASES[parts.base].__new__(parts.kind, parts.entries), parts)


def _with_attributes(new: Any, parts: Parts) -> Any:
    if parts.attributes:
        object.__getattribute__(new, "__dict__").update(parts.attributes)
    for name, value in parts.slots.items():
        object.__setattr__(new, name, value)
    return new


def _attributes(value: Any, kind: type) -> tuple[dict[str, Any], dict[str, Any]]:
    attributes = dict(object.__getattribute__(value, "__dict__")) if _has_dict(kind) else {}
    slots = {}
    for name in slot_names(kind):
        try:
            slots[name] = object.__getattribute__(value, name)
        except AttributeError:
            continue  # never set
    return attributes, slots


def slot_names(kind: type) -> set[str]:
    """Return the names of what a class keeps outside of `__dict__`; none of them is a property."""
    return set(copyreg._slotnames(kind))  # type: ignore[attr-defined]  # as pickle finds them


def _has_dict(kind: type) -> bool:
    return kind.__dictoffset__ != 0


def _has_own_protocol(kind: type) -> bool:
    """Say whether a class says itself how its objects are copied and pickled."""
    for name in ("__reduce__", "__reduce_ex__"):
        if not any(getattr(kind, name) is getattr(own, name) for own in _PYTHONS_OWN):
            return True
    names = [name for name in _PROTOCOL if not (issubclass(kind, tuple) and "newargs" in name)]
    return any(getattr(kind, name, None) is not getattr(object, name, None) for name in names)


def _holds(base: str, kind: type) -> bool:
    """Say whether nothing but `base` and Python's attributes hold what an object consists of."""
    try:
        BASES[base].__new__(kind)
    except TypeError:  # it has a base of C that makes its objects in a way of its own
        return False
    return True
