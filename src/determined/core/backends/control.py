"""Watches the control file of a run, so that reading its content costs nothing."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from determined.journal import CONTROL_FILE, Control

logger = logging.getLogger("determined.core")

_LOOK_EVERY_SECONDS = 0.2


class ControlWatcher:
    """Keeps the newest content of a control file in `control`; reading it costs nothing."""

    def __init__(self, folder: Path) -> None:
        self.control = Control()
        self._path = folder / CONTROL_FILE
        self._seen: tuple[int, int, int] | None = None
        self._stopped = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._watch, name="determined-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_EVERY_SECONDS):
            self._look()

    def _look(self) -> None:
        try:
            status = self._path.stat()
        except OSError:
            return  # not there yet, or the folder is gone: the last content still holds
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.control = Control.parse(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            logger.warning("The control file %s cannot be read: %s.", self._path, error)
