"""States of every kind for property tests, and what it means for two of them to be the same."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import nn

Point = collections.namedtuple("Point", "x y")


class Adding(dict[Any, Any]):
    """Whoever fills it through its own methods gets something else."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, [self.get(key), value])

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError

    def __getattr__(self, name: str) -> Any:
        return self[name]  # a KeyError for what copy.copy asks for


class Twice(list[Any]):
    def append(self, value: Any) -> None:
        super().extend([value, value])

    extend = append
    __init__ = None  # nobody is to call it


class Checked(collections.OrderedDict[Any, Any]):
    def __init__(self, required: int) -> None:
        super().__init__()
        self.required = required


class Default(collections.defaultdict[Any, Any]):
    pass


class Slotted:
    __slots__ = ("never_set", "value")

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any


@dataclasses.dataclass
class Record:
    value: Any

    def __post_init__(self) -> None:
        self.made = 1


class Names(tuple[Any, ...]):
    """With attributes, too."""


def filled(kind: Any, *arguments: Any, items: Any = (), **attributes: Any) -> Any:
    new = kind.__new__(kind, *arguments)
    if isinstance(new, dict):
        if isinstance(new, Checked):
            Checked.__init__(new, 1)
        for key, value in items:
            base: Any = collections.OrderedDict if isinstance(new, Checked) else dict
            base.__setitem__(new, key, value)
    elif isinstance(new, list):
        list.extend(new, items)
    vars(new).update(attributes)
    return new


keys = st.one_of(st.text(max_size=2), st.integers(), st.none(), st.tuples(st.integers()))
tensors = st.builds(
    lambda shape, seed: torch.randn(shape, generator=torch.Generator().manual_seed(seed)),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 1000),
)
FLAT = torch.arange(20.0)
views = st.builds(lambda a, n: FLAT[a : a + n], st.integers(0, 10), st.integers(1, 9))
leaves = st.one_of(
    tensors,
    views,
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.none(),
    st.builds(lambda t: nn.Parameter(t), tensors),
    st.builds(lambda n: np.arange(n), st.integers(0, 3)),
)


def containers(inner: Any) -> Any:
    lists = st.lists(inner, max_size=3)
    pairs = st.lists(st.tuples(keys, inner), max_size=3, unique_by=lambda pair: pair[0])
    counts = st.dictionaries(keys, st.integers(1, 9), max_size=3)
    return st.one_of(
        lists,
        st.tuples(inner, inner),
        pairs.map(dict),
        counts.map(collections.Counter),
        pairs.map(collections.OrderedDict),
        pairs.map(lambda items: collections.defaultdict(list, items)),
        st.builds(lambda v, n: collections.deque(v, maxlen=n), lists, st.integers(1, 4)),
        st.builds(Point, inner, inner),
        st.sets(keys, max_size=3),
        st.frozensets(keys, max_size=3),
        pairs.map(lambda items: filled(Adding, items=items, more=items)),
        st.builds(lambda v, a: filled(Twice, items=v, extra=a), lists, inner),
        st.builds(lambda v, a: filled(Names, v, extra=a), lists, inner),
        pairs.map(lambda items: filled(Checked, items=items)),
        pairs.map(lambda items: filled(Default, items=items)),
        inner.map(Slotted),
        inner.map(Frozen),
        inner.map(Record),
        st.builds(lambda v: [v, v, (v,)], inner),  # in more places than one
    )


states = st.recursive(leaves, containers, max_leaves=12)


def parts(value: Any) -> list[Any]:
    """Return what a container holds, in order, and its attributes."""
    found: list[Any] = []
    if isinstance(value, dict):
        found += [part for pair in dict.items(value) for part in pair]
    elif isinstance(value, (list, tuple, collections.deque)):
        kinds: tuple[Any, ...] = (list, tuple, collections.deque)
        kind = next(kind for kind in kinds if isinstance(value, kind))
        found += list(kind.__iter__(value))
    elif isinstance(value, (set, frozenset)):
        found += sorted(value, key=repr)
    found.append(getattr(type(value), "maxlen", None) and value.maxlen)
    if isinstance(value, collections.defaultdict):
        found.append(value.default_factory)
    if not isinstance(value, (torch.Tensor, np.ndarray)) and hasattr(type(value), "__dict__"):
        attributes = (
            getattr(value, "__dict__", {}) if not isinstance(value, Adding) else vars(value)
        )
        found += [part for pair in attributes.items() for part in pair]
    if isinstance(value, Slotted):
        found.append(value.value)
    return found


def is_empty(value: Any) -> bool:
    return type(value) in (tuple, frozenset) and not value  # Python has only one of each


def assert_same(a: Any, b: Any, pairs: dict[int, Any]) -> None:
    """Equal, of the same types, and shared in the same places."""
    assert type(a) is type(b)
    if a is None or isinstance(a, (int, float, str, type)) or is_empty(a):
        assert a == b
        return
    if id(a) in pairs:
        assert pairs[id(a)] is b
        return
    pairs[id(a)] = b
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
        assert (a.dtype, a.requires_grad) == (b.dtype, b.requires_grad)
    elif isinstance(a, np.ndarray):
        assert np.array_equal(a, b)
        assert not np.shares_memory(a, b)
    else:
        ours, theirs = parts(a), parts(b)
        assert len(ours) == len(theirs)
        for x, y in zip(ours, theirs, strict=True):
            assert_same(x, y, pairs)


def tensors_in(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif not isinstance(value, (int, float, str, type, np.ndarray)) and id(value) not in seen:
        seen.add(id(value))
        for part in parts(value):
            if part is not None:
                yield from tensors_in(part, seen)


def memory(state: Any) -> set[int]:
    return {t.untyped_storage().data_ptr() for t in tensors_in(state, set()) if t.numel()}
