"""How objects of the client reach their home; works across threads, forks and pickling."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from determined.platform.service import Service
    from determined.platform.service.model_registry import ModelRegistry
    from determined.platform.service.workspaces import Workspaces
    from determined.store import Reader


class Session:
    """One home, opened on first use, once per process.

    A connection to the store must not cross a fork, so that a child opens its own.
    """

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        from determined.platform.homes.home import Home

        self.home = Home.find() if home is None else Home(home)
        self._service: Service | None = None
        self._pid = os.getpid()
        self._guard = threading.Lock()

    @property
    def service(self) -> Service:
        """The commands and queries of the platform."""
        from determined.platform.service import Service

        if self._pid != os.getpid():  # the child of a fork has another one, and one thread only
            self._pid, self._service, self._guard = os.getpid(), None, threading.Lock()
        with self._guard:
            if self._service is None:
                self._service = Service(self.home)
            return self._service

    @property
    def reader(self) -> Reader | None:
        """The store; None if nothing was created yet."""
        return self.service.reader if self.service.has_store else None

    @property
    def registry(self) -> ModelRegistry:
        """Models and their versions."""
        from determined.platform.service.model_registry import ModelRegistry

        return ModelRegistry(self.service)

    @property
    def workspaces(self) -> Workspaces:
        """Workspaces and projects."""
        from determined.platform.service.workspaces import Workspaces

        return Workspaces(self.service)

    def __reduce__(self) -> tuple[Callable[..., Session], tuple[str]]:
        return Session, (str(self.home.path),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session) and other.home.path == self.home.path

    def __hash__(self) -> int:
        return hash(self.home.path)
