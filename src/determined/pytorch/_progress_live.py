"""The live display, drawn with rich from a thread of its own."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from determined.pytorch._progress import Frame

_SHORTEST_PAUSE_SECONDS = 0.1
_PAUSE_PER_DRAWING = 100  # at most one percent of a core, however slow drawing is
_MAX_METRICS = 8


class LiveDisplay:
    """Draws frames until closed. What the program prints or logs meanwhile appears above.

    A frame equal to the last is not drawn, so a debugger's prompt is left alone.
    """

    def __init__(self, frame: Callable[[], Frame]) -> None:
        self._frame = frame
        self._drawn = frame()
        self._console = _build_console()
        self._live = Live(
            get_renderable=lambda: _render(self._drawn),
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start(refresh=True)
        self._console.show_cursor(True)  # a killed process must not leave a terminal without one
        self._redirection = _Redirection(self._console)
        self._is_closed = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        _current.add(self)

    def close(self) -> None:
        """Draw the last frame and leave it on the screen."""
        if self._is_closed:
            return
        self._is_closed = True
        _current.discard(self)
        self._done.set()
        self._thread.join(5)
        if not self._thread.is_alive():  # else it is stuck in a terminal that takes no output
            self._drawn = self._frame()
            with contextlib.suppress(OSError, ValueError):
                self._live.stop()
        self._redirection.undo()
        self._redirection.flush()
        if not self._console.is_jupyter:
            # Whoever still holds a redirected stream goes on writing, to the real one.
            own, self._console.file = self._console.file, sys.stderr
            with contextlib.suppress(OSError, ValueError):
                own.close()
        atexit.unregister(self.close)

    def forget(self) -> None:
        """Leave the terminal to the parent. Takes no lock: the fork may have copied it held."""
        self._is_closed = True
        self._redirection.undo()

    def _run(self) -> None:
        pause = _SHORTEST_PAUSE_SECONDS
        while not self._done.wait(pause):
            start = time.thread_time()
            frame = self._frame()
            if frame != self._drawn:
                self._drawn = frame
                try:
                    self._live.refresh()
                except (OSError, ValueError):  # the terminal is gone
                    return
            cost = time.thread_time() - start
            pause = max(_SHORTEST_PAUSE_SECONDS, _PAUSE_PER_DRAWING * cost)


def _build_console() -> Console:
    if "ipykernel" in sys.modules:
        return Console(force_jupyter=True)
    # A stream of our own: bytes that cannot be written must not stay in the program's buffer.
    terminal = os.fdopen(
        os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding, errors="replace"
    )
    return Console(file=terminal)


def _render(frame: Frame) -> RenderableType:
    total = frame.max_length_batches
    bar = ProgressBar(total, frame.batches_trained, width=30, pulse=total is None)
    of = "" if total is None else f"/{total}"
    if total:
        of += f" {min(1.0, frame.batches_trained / total):.0%}"
    words = [frame.status, f"batch {frame.batches_trained}{of}"]
    words += [f"{name} {value}" for name, value in frame.facts]
    first = Table.grid(padding=(0, 2))
    first.add_row(bar, Text("  ".join(words), no_wrap=True, overflow="ellipsis"))
    rows: list[RenderableType] = [first]
    if frame.training:
        rows.append(_row("training", frame.training))
    if frame.validation:
        rows.append(_row("validation", frame.validation, "best so far" if frame.is_best else ""))
    if frame.checkpoint is not None:
        rows.append(_row("checkpoint", [("", frame.checkpoint)]))
    return Group(*rows)


def _row(title: str, pairs: Sequence[tuple[str, str]], note: str = "") -> Text:
    text = Text(f"{title:<12}", style="dim", no_wrap=True, overflow="ellipsis")
    for name, value in pairs[:_MAX_METRICS]:
        text.append(f"{name} " if name else "", style="not dim")
        text.append(f"{value}  ", style="not dim bold")
    if len(pairs) > _MAX_METRICS:
        text.append(f"and {len(pairs) - _MAX_METRICS} more  ")
    return text.append(note, style="not dim green")


class _Redirection:
    """Sends prints and log records that go to the terminal through the console, until undone."""

    def __init__(self, console: Console) -> None:
        self._proxies: dict[str, tuple[Any, FileProxy]] = {}
        for name in ("stdout", "stderr") if console.is_terminal else ():
            stream = getattr(sys, name)
            if stream is not None and not stream.closed and stream.isatty():
                stream.flush()
                self._proxies[name] = stream, FileProxy(console, stream)
                setattr(sys, name, self._proxies[name][1])
        self._handlers: list[tuple[Any, Any, FileProxy]] = []
        for handler in _stream_handlers():
            for stream, proxy in self._proxies.values():
                if handler.stream is stream:
                    self._handlers.append((handler, stream, proxy))
                    handler.stream = proxy

    def undo(self) -> None:
        for name, (stream, proxy) in self._proxies.items():
            if getattr(sys, name) is proxy:
                setattr(sys, name, stream)
        for handler, stream, proxy in self._handlers:
            if handler.stream is proxy:
                handler.stream = stream

    def flush(self) -> None:
        for _, proxy in self._proxies.values():
            with contextlib.suppress(OSError, ValueError):
                proxy.flush()


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    named = list(logging.root.manager.loggerDict.values())
    loggers = [logging.root, *(entry for entry in named if isinstance(entry, logging.Logger))]
    handlers = {handler for logger in loggers for handler in logger.handlers}
    return [handler for handler in handlers if isinstance(handler, logging.StreamHandler)]


_current: set[LiveDisplay] = set()


def _forget_in_forked_child() -> None:
    for display in _current:
        display.forget()


os.register_at_fork(after_in_child=_forget_in_forked_child)
