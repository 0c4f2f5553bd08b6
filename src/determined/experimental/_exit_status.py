"""The exit status that this process is about to have, as far as it can be known in advance."""

from __future__ import annotations

import sys
from typing import Any, NoReturn


class ExitStatus:
    """Remembers an uncaught exception, and what `sys.exit()` was called with, until `close`."""

    def __init__(self) -> None:
        self._before = getattr(sys, "last_value", None)
        self._exit = sys.exit
        self._called_with: SystemExit | None = None
        sys.exit = self._leave

    def error(self) -> BaseException | None:
        """What ends the process, if anything does."""
        uncaught: BaseException | None = getattr(sys, "last_value", None)
        if uncaught is not None and uncaught is not self._before:
            return uncaught
        return self._called_with

    def close(self) -> None:
        """Restore `sys.exit`, unless other code has replaced it."""
        if sys.exit == self._leave:
            sys.exit = self._exit

    def _leave(self, status: Any = None, /) -> NoReturn:
        self._called_with = SystemExit(status)
        self._exit(status)
