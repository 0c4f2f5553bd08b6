"""The backend of a detached script, which got ids from the platform: journal, heartbeat, end."""

from __future__ import annotations

import sys
import threading
import traceback

from determined.core.backends.journal import JournalBackend
from determined.core.backends.run_log import RunLog
from determined.core.backends.tracking import how_it_ended
from determined.journal import Ended, Heartbeat, InboxItem, JournalWriter

_HEARTBEAT_SECONDS = 60.0


class DetachedBackend(JournalBackend):
    """A run of the platform that the platform did not start: it reports its own end."""

    def __init__(
        self,
        item: InboxItem,
        writer: JournalWriter,
        log: RunLog,
        run_id: int,
        steps_completed: int,
    ) -> None:
        self._log = log
        super().__init__(item.path, run_id, steps_completed, writer=writer, restarts_trials=False)
        self._end = how_it_ended(None, None)
        self._is_over = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="determined-heart", daemon=True)
        self._heart.start()

    def note_end(self, error: BaseException | None, signal_number: int | None) -> None:
        self._end = how_it_ended(error, signal_number)
        is_shown = error is getattr(sys, "last_value", None)  # printed, and so in the log already
        if error is not None and not is_shown and not isinstance(error, SystemExit):
            self._log.write("".join(traceback.format_exception(error)))

    def close(self) -> None:
        if not self._is_over.is_set():
            self._is_over.set()
            self._heart.join()
            self.append(Ended(*self._end))
        super().close()

    def _beat(self) -> None:
        while not self._is_over.wait(_HEARTBEAT_SECONDS):
            self.append(Heartbeat())
