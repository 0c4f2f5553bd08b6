"""The data sources of endpoints: the store if there is one, the supervisor, the slots."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from determined.dashboard.endpoints.endpoints import ApiError
from determined.dashboard.search.positions import Searches
from determined.dashboard.tensorboards import TensorBoards
from determined.errors import DeterminedError, StoreVersionError
from determined.platform.machines.machine import find_machine
from determined.platform.machines.slots import Machine
from determined.platform.service import NotFoundError, Service
from determined.platform.supervisor import presence
from determined.store import Experiment, Reader, Trial

T = TypeVar("T")
_SLOTS_SECONDS = 10.0
_MOST_REMEMBERED = 64


class View:
    """One home, as the dashboard shows it. Shared by threads; it never starts a supervisor."""

    def __init__(self, service: Service, csrf: str = "") -> None:
        self.service = service
        self.home = service.home
        self.csrf = csrf
        self.searches = Searches()
        self.tensorboards = TensorBoards(service)
        self._guard = threading.Lock()
        self._reader: Reader | None = None
        self._version: Callable[[], int] | None = None
        self._remembered: dict[Any, tuple[Any, Any]] = {}
        self._machine: tuple[float, Machine] | None = None

    @property
    def has_store(self) -> bool:
        """Whether anything was ever created in this home; true results are cached."""
        return self._reader is not None or self.service.has_store

    @property
    def reader(self) -> Reader:
        """The store; a ApiError says what to do if it cannot be read yet."""
        with self._guard:
            if self._reader is None:
                if not self.has_store:
                    raise ApiError(
                        404,
                        f"There is nothing in {self.home.path} yet.",
                        "Create an experiment: `det experiment create CONFIG MODEL_DIR`.",
                    )
                try:
                    self._reader = Reader(self.home.path)
                except StoreVersionError as error:
                    raise ApiError(503, str(error), "`det supervisor start`") from None
            return self._reader

    def experiment(self, experiment_id: int) -> Experiment:
        """An experiment; NotFoundError if there is none with this id."""
        found = self.reader.experiment(experiment_id) if self.has_store else None
        if found is None:
            raise NotFoundError(f"There is no experiment {experiment_id}.")
        return found

    def trial(self, trial_id: int) -> Trial:
        """A trial; NotFoundError if there is none with this id."""
        found = self.reader.trial(trial_id) if self.has_store else None
        if found is None:
            raise NotFoundError(f"There is no trial {trial_id}.")
        return found

    def supervisor(self) -> presence.Facts | None:
        """The running supervisor, None if there is none."""
        return presence.find(self.home)

    def machine(self) -> Machine:
        """The slots, detected again from time to time."""
        now = time.monotonic()
        known = self._machine
        if known is None or now - known[0] > _SLOTS_SECONDS:
            try:
                known = self._machine = (now, find_machine(self.home))
            except ValueError as error:  # of a variable that says how many there are
                raise DeterminedError(str(error)) from None
        return known[1]

    def remember(self, key: Any, mark: Any, make: Callable[[], T]) -> T:
        """The result of `make`, cached until the key's mark changes."""
        with self._guard:
            known = self._remembered.get(key)
        if known is not None and known[0] == mark:
            value: T = known[1]
            return value
        value = make()
        with self._guard:
            self._remembered.pop(key, None)
            while len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.pop(next(iter(self._remembered)))
            self._remembered[key] = (mark, value)
        return value

    def while_unchanged(self, key: Any, make: Callable[[], T]) -> T:
        """The result of `make`, cached until anything is committed to the store.

        Do not use it within a snapshot, which may be older than the version checked here.
        """
        reader = self.reader
        with self._guard:
            if self._version is None:
                self._version = reader.version_probe()
            version = self._version()
        return self.remember(key, version, make)

    def close(self) -> None:
        """End everything that was started, and close the store."""
        self.tensorboards.close()
        with self._guard:
            if self._reader is not None:
                self._reader.close()
                self._reader = self._version = None
        self.service.close()
