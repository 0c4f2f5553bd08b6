"""Lines of logs on the terminal: plain, safe, and with a line of progress below them."""

from __future__ import annotations

import re
import shutil
import sys
from typing import TYPE_CHECKING

import click

from determined.cli._commands.errors import use_colour
from determined.cli._present.tables import iso_time, printable, time_text

if TYPE_CHECKING:
    from determined.platform.queries.logs import LogEntry

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_TRIAL_COLOURS = ("cyan", "green", "yellow", "magenta", "blue")
_CLEAR = "\r\x1b[K"


class LogPrinter:
    """Prints lines; those of several trials with the trial they come from."""

    def __init__(self, *, names_trials: bool, utc: bool, as_json: bool) -> None:
        self._names_trials = names_trials
        self._utc = utc
        self._as_json = as_json
        self._is_terminal = sys.stdout.isatty()
        self._has_colour = use_colour(sys.stdout)

    def show(self, entry: LogEntry) -> None:
        """Print a line."""
        click.echo(self._json(entry) if self._as_json else self._text(entry), color=True)

    def _text(self, entry: LogEntry) -> str:
        line = entry.line
        text = _safe(line.text) if self._is_terminal else line.text
        time = time_text(line.time, utc=self._utc)
        whose = f" trial {entry.trial_id}" if self._names_trials else ""
        prefix = f"{time}{whose} | "
        if self._has_colour:
            colour = _TRIAL_COLOURS[entry.trial_id % len(_TRIAL_COLOURS)]
            prefix = click.style(prefix, fg=colour if self._names_trials else "bright_black")
            if line.level in ("ERROR", "CRITICAL"):
                text = click.style(text, fg="red")
            elif line.level == "WARNING":
                text = click.style(text, fg="yellow")
        return prefix + text

    def _json(self, entry: LogEntry) -> str:
        import json

        line = entry.line
        content = {
            "trial_id": entry.trial_id,
            "run_id": entry.run_id,
            "line": line.number,
            "timestamp": iso_time(line.time),
            "rank_id": line.rank,
            "level": line.level,
            "message": line.text,
        }
        return json.dumps(content, sort_keys=True)


def _safe(text: str) -> str:
    """What a terminal may be sent: no colours, of a line drawn over itself the last state."""
    text = _COLOURS.sub("", text).rstrip("\r").rpartition("\r")[2]
    return printable(text.replace("\t", "    "))


class ProgressLine:
    """One line on stderr that is drawn over; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty() and use_colour(sys.stderr)
        self._text = ""
        self._is_drawn = False

    def show(self, text: str | None = None) -> None:
        """Draw the line, with a new text or as it was."""
        if text is not None and text != self._text:
            self._text, self._is_drawn = text, False
        if self._is_terminal and self._text and not self._is_drawn:
            width = shutil.get_terminal_size().columns - 3  # a ^C fits behind it
            sys.stderr.write(f"{_CLEAR}{printable(self._text)[:width]}")
            sys.stderr.flush()
            self._is_drawn = True

    def clear(self) -> None:
        """Make room for other output."""
        if self._is_drawn:
            sys.stdout.flush()
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._is_drawn = False
