"""A batch sampler and the samplers that it wraps: their state, their generators, their epochs."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from determined.pytorch._data.fetch import draw_base_seed
from determined.pytorch._data.part_states import PartStates, has_state
from determined.pytorch._data.seed import mix
from determined.pytorch.samplers import (
    DistributedBatchSampler,
    RepeatBatchSampler,
    RepeatSampler,
    SkipBatchSampler,
    SkipSampler,
)
from determined.pytorch.samplers import DistributedSampler as ShardSampler

_VALUES = {int, float, bool, str, type(None)}
_WITHOUT_STATE = (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    DistributedSampler,
    RepeatSampler,
    RepeatBatchSampler,
    ShardSampler,
    DistributedBatchSampler,
    SkipSampler,
    SkipBatchSampler,
    list,
    tuple,
    range,
    torch.Tensor,
)


class UserGenerators:
    """The generators in a loader's samplers: as torch has them in epoch 0, by their seeds later."""

    def __init__(self, loader: Any) -> None:
        self._shared = loader.generator
        self._all = generators_of(loader.batch_sampler)
        self._seeds = [generator.initial_seed() for generator in self._all]
        self._states = [generator.get_state() for generator in self._all]

    def begin(self, epoch: int) -> None:
        """Bring the generators to the start of an epoch."""
        for generator, seed, state in zip(self._all, self._seeds, self._states, strict=True):
            if epoch > 0:
                generator.manual_seed(mix(seed, epoch))
                continue
            generator.set_state(state)
            if generator is self._shared:
                draw_base_seed(generator)

    def state_dict(self) -> dict[str, Any]:
        """Return what a new process needs if it has seeded its generators differently."""
        return {"seeds": self._seeds, "states": self._states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin epochs as the run did that gave `state`."""
        if len(state["seeds"]) == len(self._all):
            self._seeds, self._states = list(state["seeds"]), list(state["states"])


def generators_of(sampler: Any, *others: Any) -> list[torch.Generator]:
    """Return all generators that a sampler and those in it have as `generator`."""
    found = [getattr(part, "generator", None) for part in _chain(sampler)]
    by_identity = {id(g): g for g in (*found, *others) if isinstance(g, torch.Generator)}
    return list(by_identity.values())


class NestedSampler:
    """A batch sampler with all that it wraps, brought to the start of an epoch together."""

    def __init__(self, batch_sampler: Any, generators: UserGenerators) -> None:
        self._generators = generators
        self._chain = _chain(batch_sampler)
        self._stateful = [part for part in self._chain if has_state(part)]
        self._custom = [part for part in self._chain if type(part) not in _WITHOUT_STATE]
        self._own_generators = PartStates(only_generators=True, sampler=self._custom)

    @property
    def is_custom(self) -> bool:
        """Whether any of it is more than torch's own samplers and ours, which keep no state."""
        return bool(self._custom)

    @property
    def has_state(self) -> bool:
        """Whether any of it has `state_dict` and `load_state_dict`."""
        return bool(self._stateful)

    @property
    def name(self) -> str:
        """The class of the innermost custom one."""
        return type(self._custom[-1]).__name__

    def can_jump(self, states: list[Any] | None) -> bool:
        """Say whether an epoch can be opened without reading those before it."""
        return all(
            callable(getattr(part, "set_epoch", None)) or (states is not None and has_state(part))
            for part in self._custom
        )

    def begin(self, epoch: int, states: list[Any] | None) -> dict[str, Any]:
        """Bring all parts to the start of an epoch; return that position."""
        own = self._own_generators.state_dict()
        self._generators.begin(epoch)
        for part in self._chain:
            if callable(getattr(part, "set_epoch", None)) and not (states and has_state(part)):
                part.set_epoch(epoch)
        self.load_states(states or [])
        position: dict[str, Any] = {"epoch": epoch}
        if own:
            position["own"] = own
        if self._stateful:
            position["samplers"] = self.states()
        return position

    def states(self) -> list[Any]:
        """Return a copy of the state of each part that has one."""
        return [copy.deepcopy(part.state_dict()) for part in self._stateful]

    def load_states(self, states: list[Any]) -> None:
        """Bring each part that has a state to its own."""
        for part, state in zip(self._stateful, states, strict=False):
            part.load_state_dict(copy.deepcopy(state))

    def load_own_generators(self, states: dict[str, Any]) -> None:
        """Bring the generators that custom samplers hold to their states."""
        self._own_generators.load_state_dict(states)

    def memory(self) -> str:
        """Return a hash of what the samplers remember: of their own reading, unless they react."""
        return hash_of(
            _text(part.state_dict() if has_state(part) else getattr(part, "__dict__", {}))
            for part in self._custom
        )


def hash_of(items: Iterable[Any]) -> str:
    """Return a short text that is the same for equal items."""
    return hashlib.blake2b(repr(list(items)).encode(), digest_size=16).hexdigest()


def _text(value: Any, depth: int = 3) -> str:
    """Return values as text; objects, whose text may be an address, are left out."""
    if isinstance(value, torch.Tensor):
        return _text(value.detach().cpu().tolist(), depth)
    if isinstance(value, np.ndarray):
        return _text(value.tolist(), depth)
    if type(value) in _VALUES:
        return repr(value)
    if isinstance(value, dict):
        value = [item for pair in value.items() for item in pair]
    if not isinstance(value, (list, tuple)):
        return ""
    if all(type(item) in _VALUES for item in value):
        return repr(value)
    is_small = depth > 0 and len(value) <= 1000
    return ",".join(_text(item, depth - 1) for item in value) if is_small else ""


def _chain(sampler: Any) -> list[Any]:
    """Return a sampler and the samplers it wraps, outermost first."""
    chain: list[Any] = []
    while sampler is not None and not any(sampler is part for part in chain):
        chain.append(sampler)
        inner = getattr(sampler, "batch_sampler", None)
        sampler = getattr(sampler, "sampler", None) if inner is None else inner
    return chain
