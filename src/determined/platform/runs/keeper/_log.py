"""Follows the log of a run: records when lines came and applies the policies.

The entrypoint writes to the log directly, and does not depend on this: if the keeper falls behind
or dies, only time stamps are missing.
"""

from __future__ import annotations

import contextlib
import os
import time

from determined._contracts.log_index import Stamper, pack
from determined._os import inotify
from determined.platform.runs.folder import RunFolder
from determined.platform.runs.keeper._policies import Policies

_PIECE_BYTES = 1 << 17
_PIECES_AT_A_TIME = 32


class FollowedLog:
    """The log, from the keeper's side. `descriptor` is for the entrypoint to write to."""

    def __init__(self, folder: RunFolder) -> None:
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.descriptor = os.open(folder.log, append, 0o600)
        self._reader = os.open(folder.log, os.O_RDONLY | os.O_CLOEXEC)
        self._times = os.open(folder.log_times, append, 0o600)
        self._folder = folder
        self._stamper = Stamper()
        self._policies = Policies(folder.spec.policies, self.note)
        self.growth = inotify.watch(folder.log, inotify.MODIFIED)

    @property
    def policies(self) -> Policies:
        return self._policies

    def note(self, text: str) -> None:
        """Add a line of our own."""
        with contextlib.suppress(OSError):
            os.write(self.descriptor, f"INFO: [{os.getpid()}] determined.keeper: {text}\n".encode())

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self.descriptor, text.encode())

    def follow(self) -> bool:
        """Read some of what is new; return whether there is more."""
        if self.growth is not None:
            inotify.forget(self.growth)
        for _ in range(_PIECES_AT_A_TIME):
            piece = os.read(self._reader, _PIECE_BYTES)
            if not piece:
                return False
            self._take(piece)
        return True

    def finish(self) -> None:
        """Read the rest, once nothing writes any more."""
        while self.follow():
            pass
        if self._policies.search(b"", is_last=True):
            self._folder.save_matches(self._policies.matches)
        for descriptor in (self.descriptor, self._reader, self._times, self.growth):
            if descriptor is not None:
                os.close(descriptor)

    def _take(self, piece: bytes) -> None:
        record = self._stamper.stamp(piece, time.time_ns() // 1000)
        with contextlib.suppress(OSError):  # a full disk: the run matters more than its time stamps
            if record is not None:
                os.write(self._times, pack(record))
            if self._policies.search(piece):
                self._folder.save_matches(self._policies.matches)
