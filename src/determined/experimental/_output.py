"""Copy what a script prints to the log of its run."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from determined.core.backends.run_log import RunLog

_LONGEST_WAITING = 1 << 16


class TeedOutput:
    """Standard output and error, both shown as before and written to a log, until `close`."""

    def __init__(self, log: RunLog, rank: int = 0) -> None:
        prefix = f"[rank={rank}] " if rank else ""
        self._streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        self._tees = {
            name: _Tee(stream, log, prefix)
            for name, stream in self._streams.items()
            if stream is not None
        }
        for name, tee in self._tees.items():
            setattr(sys, name, tee)
            _redirect_handlers(self._streams[name], tee)

    def close(self) -> None:
        """Stop copying; a stream that replaced ours meanwhile stays."""
        for name, tee in self._tees.items():
            tee.finish()
            if getattr(sys, name) is tee:
                setattr(sys, name, self._streams[name])
            _redirect_handlers(tee, self._streams[name])
        self._tees = {}


class _Tee:
    """A text stream that also writes to a log; in all else it is the stream."""

    def __init__(self, stream: TextIO, log: RunLog, prefix: str) -> None:
        self._stream = stream
        self._log: RunLog | None = log
        self._prefix = prefix
        self._waiting = ""

    def write(self, text: str) -> int:
        count = self._stream.write(text)
        if self._log is not None and text:
            self._log.write(self._whole_lines(text) if self._prefix else text)
        return count

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def finish(self) -> None:
        """Write what waits for the end of its line; from now on only show."""
        if self._log is not None and self._waiting:
            self._log.write(f"{self._prefix}{self._waiting}\n")
        self._log = None

    def _whole_lines(self, text: str) -> str:
        """Lines that say whose they are: several ranks write to one log."""
        *lines, self._waiting = (self._waiting + text).split("\n")
        if len(self._waiting) > _LONGEST_WAITING:
            lines, self._waiting = [*lines, self._waiting], ""
        return "".join(f"{self._prefix}{line}\n" for line in lines)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _redirect_handlers(old: Any, new: Any) -> None:
    """Let handlers of the root logger that show on a stream do so on another."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is old:
            handler.setStream(new)
