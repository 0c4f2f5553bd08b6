"""Standard output and error while the live display owns the terminal."""

from __future__ import annotations

import collections
import contextlib
import io
import logging
import sys
import threading
from typing import Any, TextIO

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.text import Text


class Redirection:
    """Sends prints and log records that go to the terminal through the console, until undone."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._streams: dict[str, tuple[Any, LineStream]] = {}
        self._handlers: list[tuple[Any, Any, LineStream]] = []

    def start(self) -> None:
        """Take the streams."""
        for name in ("stdout", "stderr") if self._console.is_terminal else ():
            stream = getattr(sys, name)
            if stream is not None and not stream.closed and stream.isatty():
                stream.flush()
                self._streams[name] = stream, LineStream(self._console, stream)
                setattr(sys, name, self._streams[name][1])
        for handler in _stream_handlers():
            for stream, ours in self._streams.values():
                if handler.stream is stream:
                    self._handlers.append((handler, stream, ours))
                    handler.stream = ours

    def unfinished_lines(self) -> tuple[str, ...]:
        """Return what was written without an end of line: prompts, and bars that redraw."""
        return tuple(
            ours.unfinished_line
            for _, ours in self._streams.values()
            if ours.unfinished_line.strip()
        )

    def print_posted(self) -> None:
        """Print what signal handlers left."""
        for _, ours in self._streams.values():
            ours.print_posted()

    def undo(self) -> None:
        """Restore the streams. Code that still holds one of ours writes to the real one."""
        for name, (stream, ours) in self._streams.items():
            if getattr(sys, name) is ours:
                setattr(sys, name, stream)
            ours.let_through()
        for handler, stream, ours in self._handlers:
            if handler.stream is ours:
                handler.stream = stream

    def write_unfinished_lines(self) -> None:
        """Write, once undone, what the display showed of lines without an end."""
        for stream, ours in self._streams.values():
            with contextlib.suppress(OSError, ValueError):
                stream.write(ours.unfinished_line)
                stream.flush()


class LineStream(io.TextIOBase):
    """Prints whole lines above the display; a line without an end waits in `unfinished_line`.

    A carriage return starts the line again, so a bar that redraws itself stays one line.
    """

    def __init__(self, console: Console, stream: TextIO) -> None:
        self._console = console
        self._stream = stream
        self._decoder = AnsiDecoder()
        self._lock = threading.RLock()
        self._lets_through = False
        self._posted: collections.deque[str] = collections.deque()
        self.unfinished_line = ""

    def let_through(self) -> None:
        """From now on write to the real stream. Takes no lock: a fork may have copied it held."""
        self._lets_through = True

    def post(self, text: str) -> None:
        """Have text printed soon. For signal handlers, which may have interrupted a print."""
        self._posted.append(text)

    def print_posted(self) -> None:
        """Print what was posted."""
        while self._posted:
            self.write(self._posted.popleft())

    def write(self, text: str) -> int:
        """Print the lines that end in `text`, and keep the rest."""
        if self._lets_through:
            return self._stream.write(text)
        if not isinstance(text, str):
            raise TypeError(f"write() takes a str, got {type(text).__name__}.")
        with self._lock:
            *lines, rest = (self.unfinished_line + text).split("\n")
            if lines:
                decoded = [self._decoder.decode_line(_last_drawn(line)) for line in lines]
                self._console.print(Text("\n").join(decoded), soft_wrap=True)
            self.unfinished_line = _last_drawn(rest) + ("\r" if rest.endswith("\r") else "")
        return len(text)

    def flush(self) -> None:
        """Do nothing: whole lines are out already."""
        if self._lets_through:
            self._stream.flush()

    def isatty(self) -> bool:
        """Say what the real stream says."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the real stream's descriptor."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # writable in the base, for no reason
        """Return the real stream's encoding."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # as above
        """Return what the real stream does with characters it cannot encode."""
        return self._stream.errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _last_drawn(line: str) -> str:
    """Return what is left of a line that was drawn several times, from its beginning."""
    return line.rstrip("\r").rpartition("\r")[2]


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    named = list(logging.root.manager.loggerDict.values())
    loggers = [logging.root, *(entry for entry in named if isinstance(entry, logging.Logger))]
    handlers = {handler for logger in loggers for handler in logger.handlers}
    return [handler for handler in handlers if isinstance(handler, logging.StreamHandler)]
