"""Validations that depend neither on those before them nor on the process that runs them."""

from __future__ import annotations

from typing import Any

from determined.pytorch._data.loader import Loader
from determined.pytorch._data.part_states import PartStates, has_state
from determined.pytorch._data.workers import end_pass


class ValidationParts:
    """Have each block begin with the parts of a loader as they were when this was created.

    After the block they are as before it: training may share a dataset with validation. So may the
    processes of persistent workers, which are started anew if there is anything to remember.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._parts = PartStates(only_generators=has_state(loader), loader=loader)
        self._initial = self._parts.state_dict()
        self._before: dict[str, Any] = {}

    def __enter__(self) -> ValidationParts:
        self._before = self._parts.state_dict()
        self._parts.load_state_dict(self._initial)
        if isinstance(self._loader, Loader):
            if self._initial:
                self._loader.close()
        elif getattr(self._loader, "_iterator", None) is not None:
            end_pass(self._loader, self._loader._iterator)
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.load_state_dict(self._before)
