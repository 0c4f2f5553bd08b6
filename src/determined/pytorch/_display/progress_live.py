"""The live display, drawn with rich from its own thread."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from determined.pytorch._display.frame import Frame
from determined.pytorch._display.progress_streams import Redirection

_SHORTEST_PAUSE_SECONDS = 0.1
_PAUSE_PER_DRAWING = 100  # at most one percent of a core, however slow drawing is
_MAX_METRICS = 8
_TITLE_WIDTH = 12
_BAR_WIDTH = 30


class LiveDisplay:
    """Draws frames until closed. What the program prints or logs meanwhile appears above.

    Lines without an end, such as the bars of tqdm and prompts, come last, where the cursor is.
    What is equal to the last drawing is not drawn, so a debugger's prompt is left alone.
    """

    def __init__(self, frame: Callable[[], Frame]) -> None:
        self._frame = frame
        self._console = _build_console()
        self._redirection = Redirection(self._console)
        self._drawn = self._picture()
        self._live = Live(
            get_renderable=lambda: _render(*self._drawn),
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start(refresh=True)
        if not self._console.is_jupyter:
            self._console.show_cursor(True)  # a killed process must not leave a terminal without
        self._redirection.start()
        self._is_closed = False
        self._stopped = threading.Event()
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
        self._stopped.set()
        self._thread.join(5)
        if not self._thread.is_alive():  # else it is stuck in a terminal that takes no output
            self._drawn = self._frame(), ()
            with contextlib.suppress(OSError, ValueError):
                self._redirection.print_posted()
                if self._console.is_jupyter:
                    self._live.refresh()  # in terminals, stopping draws
                self._live.stop()
        self._redirection.undo()
        self._redirection.write_unfinished_lines()
        if not self._console.is_jupyter:
            with contextlib.suppress(OSError, ValueError):
                self._console.file.close()
        atexit.unregister(self.close)

    def forget(self) -> None:
        """Leave the terminal to the parent. Takes no lock: the fork may have copied it held."""
        self._is_closed = True
        self._redirection.undo()

    def _picture(self) -> tuple[Frame, tuple[str, ...]]:
        return self._frame(), self._redirection.unfinished_lines()

    def _run(self) -> None:
        pause = _SHORTEST_PAUSE_SECONDS
        while not self._stopped.wait(pause):
            start = time.thread_time()
            picture = self._picture()
            try:
                self._redirection.print_posted()
                if picture != self._drawn:
                    self._drawn = picture
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


def _render(frame: Frame, unfinished_lines: Sequence[str]) -> RenderableType:
    total = frame.max_length_batches
    position = [f"batch {frame.batches_trained}" + ("" if total is None else f"/{total}")]
    if total:
        position.insert(0, f"{min(1.0, frame.batches_trained / total):>4.0%}")
    if frame.epoch:
        position.append(f"epoch {frame.epoch}")
    first = Table.grid(padding=(0, 1, 0, 0))
    first.add_row(
        Text(f"{frame.status:<{_TITLE_WIDTH - 1}}", style="bold", no_wrap=True),
        ProgressBar(
            total,
            frame.batches_trained,
            width=_BAR_WIDTH,
            pulse=total is None,
            complete_style="cyan",
            finished_style="green",
        ),
        Text("  ".join(position), no_wrap=True, overflow="ellipsis"),
    )
    rows: list[RenderableType] = [first]
    if frame.speed:
        rows.append(_row("speed", [("", part) for part in frame.speed]))
    if frame.training:
        rows.append(_row("metrics", frame.training))
    if frame.validation:
        rows.append(_row("validation", frame.validation, _at(frame.validated_at)))
    if frame.best:
        rows.append(_row("best", frame.best, _at(frame.best_at), "not dim green"))
    if frame.checkpoint or frame.is_saving:
        note = "writing the next" if frame.checkpoint else "writing"
        rows.append(_row("checkpoint", [("", frame.checkpoint)], note if frame.is_saving else ""))
    # The cursor stays behind the last line, so nothing may follow what is being typed.
    rows += [Text.from_ansi(line, no_wrap=True, overflow="crop") for line in unfinished_lines]
    return Group(*rows)


def _row(
    title: str, pairs: Sequence[tuple[str, str]], note: str = "", style: str = "not dim bold"
) -> Text:
    text = Text(f"{title:<{_TITLE_WIDTH}}", style="dim", no_wrap=True, overflow="ellipsis")
    for name, value in pairs[:_MAX_METRICS]:
        text.append(f"{name} " if name else "", style="not dim")
        text.append(f"{value}  " if value else "", style=style if name else "not dim")
    if len(pairs) > _MAX_METRICS:
        text.append(f"and {len(pairs) - _MAX_METRICS} more  ")
    return text.append(note)


def _at(batch: int | None) -> str:
    return "" if batch is None else f"at batch {batch}"


_current: set[LiveDisplay] = set()


def _forget_in_forked_child() -> None:
    for display in _current:
        display.forget()


os.register_at_fork(after_in_child=_forget_in_forked_child)
