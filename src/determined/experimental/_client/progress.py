"""A progress bar for experiments: in a notebook, on a terminal, or none."""

from __future__ import annotations

import contextlib
import html
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from determined._os.notebook import in_ipython

if TYPE_CHECKING:
    from determined.store import Experiment

_WIDTH = 30


class Display(Protocol):
    """Shows the progress of an experiment."""

    def show(self, record: Experiment) -> None: ...
    def close(self) -> None: ...


@contextlib.contextmanager
def progress_display(wanted: bool | None) -> Iterator[Display]:
    """Return the display for this environment; `wanted` None: only in notebooks and terminals."""
    display: Display
    if wanted is False:
        display = _Nothing()
    elif _in_notebook():
        display = _NotebookBar()
    elif wanted or sys.stderr.isatty():
        display = _TerminalBar()
    else:
        display = _Nothing()
    try:
        yield display
    finally:
        display.close()


def progress_words(record: Experiment) -> str:
    """One line about the progress of an experiment."""
    trials = "1 trial" if record.num_trials == 1 else f"{record.num_trials} trials"
    words = f"experiment {record.id} {record.state} {100 * record.progress:.1f}%  {trials}"
    if record.best_validation is not None:
        words += f"  best {record.searcher_metric} {record.best_validation:.6g}"
        words += f" (trial {record.best_trial_id})"
    return words


class _Nothing:
    def show(self, record: Experiment) -> None:
        return

    def close(self) -> None:
        return


class _TerminalBar:
    """One line that is overwritten; the last one stays when the experiment has ended."""

    def __init__(self) -> None:
        self._shown = ""

    def show(self, record: Experiment) -> None:
        done = round(_WIDTH * min(1.0, max(0.0, record.progress)))
        words = "".join(c if c.isprintable() else "?" for c in progress_words(record))
        line = f"[{'#' * done}{'.' * (_WIDTH - done)}] {words}"
        if line != self._shown:
            padding = " " * (len(self._shown) - len(line))
            sys.stderr.write(f"\r{line}{padding}")
            sys.stderr.flush()
            self._shown = line

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\n")
            sys.stderr.flush()


class _NotebookBar:
    """A cell output that is replaced."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = ""

    def show(self, record: Experiment) -> None:
        from IPython import display

        show: Any = display.display
        page: Any = display.HTML
        text = (
            f"<progress value='{record.progress:.4f}' max='1' style='width:20em'></progress> "
            f"<code>{html.escape(progress_words(record))}</code>"
        )
        if text == self._shown:
            return
        self._shown = text
        if self._handle is None:
            self._handle = show(page(text), display_id=True)
        else:
            self._handle.update(page(text))

    def close(self) -> None:
        return


def _in_notebook() -> bool:
    """Whether cells can show HTML: IPython on a terminal cannot."""
    if not in_ipython():
        return False
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")
