"""Validations that depend neither on those before them nor on the process that runs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from determined.pytorch._data.loader import Loader
from determined.pytorch._data.part_states import PartStates, has_state
from determined.pytorch._data.workers import end_pass


class ValidationParts:
    """Have each block begin with the parts of loaders as they were when this was created.

    After the block they are as before it: training may share a dataset with validation. So may the
    processes of persistent workers, which are started anew if there is anything to remember.
    """

    def __init__(self, loaders: Iterable[Any]) -> None:
        self._loaders = list(loaders)
        self._parts = [
            PartStates(only_generators=has_state(loader), loader=loader) for loader in self._loaders
        ]
        self._initial = self._states()
        self._before: list[dict[str, Any]] = []

    def __enter__(self) -> ValidationParts:
        self._before = self._states()
        self._load(self._initial)
        for loader, initial in zip(self._loaders, self._initial, strict=True):
            if isinstance(loader, Loader):
                if initial:
                    loader.close()
            elif getattr(loader, "_iterator", None) is not None:
                end_pass(loader, loader._iterator)
        return self

    def __exit__(self, *_: object) -> None:
        self._load(self._before)

    def _states(self) -> list[dict[str, Any]]:
        return [parts.state_dict() for parts in self._parts]

    def _load(self, states: list[dict[str, Any]]) -> None:
        for parts, state in zip(self._parts, states, strict=True):
            parts.load_state_dict(state)
