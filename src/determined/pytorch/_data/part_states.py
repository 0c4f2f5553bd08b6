"""What the parts of a loader remember from one sample to the next, as far as it can be saved."""

from __future__ import annotations

import copy
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from determined.pytorch._checkpoint.state.numpy_states import checked

_MAX_OBJECTS = 1000  # looked at: a dataset may hold a whole world
_MAX_ITEMS = 100  # in a list or dictionary: more are samples, not parts
_PARTS = ("dataset", "datasets", "sampler", "batch_sampler", "collate_fn")
# Others save and restore these.
_GLOBAL_GENERATORS = (torch.default_generator, random.random.__self__, np.random.rand.__self__)  # type: ignore[attr-defined]  # of bound methods
_LEAVES = (type, types.ModuleType, types.FunctionType, torch.Tensor, np.ndarray, nn.Module)


class Access(NamedTuple):
    """How to get at one state."""

    path: str
    is_generator: bool
    read: Callable[[], Any]
    write: Callable[[Any], Any]


class PartStates:
    """The states of all parts of a loader that have one.

    These are datasets (also those in torch's `Subset` and the like), samplers and collate functions
    with `state_dict` and `load_state_dict`, or with `set_epoch` and an attribute `epoch`, and
    random generators that are attributes of them or of what they hold, such as transforms.
    """

    def __init__(self, *, only_generators: bool = False, **roots: Any) -> None:
        self._roots = roots
        self._only_generators = only_generators

    def __bool__(self) -> bool:
        return next(self._found(), None) is not None

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of each state, by the path that leads to its part."""
        return {access.path: copy.deepcopy(access.read()) for access in self._found()}

    def load_state_dict(self, states: dict[str, Any]) -> None:
        """Bring each part to its state. Parts that are not mentioned stay as they are."""
        for is_generator in (False, True):  # a part may make new ones when it is loaded
            for access in list(self._found()):
                if access.is_generator == is_generator and access.path in states:
                    access.write(copy.deepcopy(states[access.path]))

    def _found(self) -> Iterator[Access]:
        has_parts = not self._only_generators
        queue = deque((name, root, has_parts) for name, root in self._roots.items())
        seen = set(map(id, _GLOBAL_GENERATORS))
        while queue and len(seen) < _MAX_OBJECTS:
            path, thing, is_part = queue.popleft()
            if id(thing) in seen or isinstance(thing, _LEAVES):
                continue
            seen.add(id(thing))
            if (generator := _generator(thing)) is not None:
                yield Access(path, True, *generator)
                continue
            if is_part and has_state(thing):
                yield Access(path, False, thing.state_dict, thing.load_state_dict)
            elif is_part and (epoch := _epoch_of(thing)) is not None:
                yield Access(path, False, epoch, thing.set_epoch)
            queue.extend(
                (f"{path}.{name}", held, is_part and (name in _PARTS or path.endswith("datasets")))
                for name, held in _held_by(thing)
            )


def has_state(thing: Any) -> bool:
    """Return whether a dataset, sampler or loader can save and restore its own position."""
    return all(callable(getattr(thing, name, None)) for name in ("state_dict", "load_state_dict"))


def _epoch_of(thing: Any) -> Callable[[], int] | None:
    """Return how to read the epoch that was set, where that is plain to see."""
    names = [name for name in getattr(thing, "__dict__", ()) if name.lstrip("_") == "epoch"]
    if not callable(getattr(thing, "set_epoch", None)) or len(names) != 1:
        return None
    return lambda: int(getattr(thing, names[0]))


def _held_by(thing: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(thing, (list, tuple)):
        held = [(str(index), item) for index, item in enumerate(thing[: _MAX_ITEMS + 1])]
    elif isinstance(thing, dict):
        held = [(str(key), item) for key, item in thing.items()] if len(thing) <= _MAX_ITEMS else []
    else:
        return list(getattr(thing, "__dict__", {}).items())
    return held if len(held) <= _MAX_ITEMS else []


def _generator(thing: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """Return how to read and write a random generator, as plain values that any file may hold."""
    if isinstance(thing, torch.Generator):
        return thing.get_state, thing.set_state
    if isinstance(thing, random.Random):
        return thing.getstate, lambda s: thing.setstate((s[0], tuple(s[1]), s[2]))
    if isinstance(thing, np.random.RandomState):
        return lambda: _plain(thing.get_state(legacy=False)), lambda s: thing.set_state(_arrays(s))
    if isinstance(thing, np.random.Generator):
        bits = thing.bit_generator
        return lambda: _plain(bits.state), lambda s: setattr(bits, "state", _arrays(s))
    return None


def _plain(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state


def _arrays(state: dict[str, Any]) -> dict[str, Any]:
    checked(state)
    kind = np.uint32 if state.get("bit_generator") == "MT19937" else np.uint64

    def array(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: array(item) for key, item in value.items()}
        return np.array(value, kind) if isinstance(value, list) else value

    return {key: array(value) for key, value in state.items()}
