"""Tables on the terminal, and the same rows as CSV or JSON."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, Literal, TextIO, TypeVar

import click

from determined._contracts.json_numbers import json_safe
from determined.cli._commands.errors import use_colour
from determined.cli._present.layout import fitted, printable, table

Output = Literal["table", "csv", "json"]
_JSON_NAME = re.compile(r'^ +"(?:[^"\\]|\\.)*"(?=: )', re.MULTILINE)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def output_options(function: _Function) -> _Function:
    """Give a command `--csv` and `--json`; it gets the argument `output`."""
    for name in ("json", "csv"):
        function = click.option(
            f"--{name}",
            "output",
            flag_value=name,
            type=click.Choice(["table", "csv", "json"]),
            default="table",
            help=f"Print {name.upper()}.",
        )(function)
    return function


def show(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    output: Output = "table",
    data: object = None,
    *,
    in_full: bool = False,
    spare: Sequence[str] = (),
) -> None:
    """Print rows in one of the forms; `data` is what JSON shows instead of the rows.

    With `in_full`, a few rows that are too wide for the terminal become lists instead of being cut.
    Columns named in `spare` are left out where the terminal is too narrow, the first one first.
    """
    if output == "csv":
        show_csv(headers, rows)
    elif output == "json":
        keyed = [dict(zip(headers, row, strict=True)) for row in rows]
        show_json(keyed if data is None else data)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        if width is None:
            click.echo(table(headers, rows))
        else:
            colours = use_colour(sys.stdout)
            shown = fitted(headers, rows, width, in_full=in_full, spare=spare, colours=colours)
            click.echo(shown, color=colours)


def show_csv(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows as CSV; nothing is cut, and only on a terminal is text made harmless."""
    if sys.stdout.isatty():
        headers = [printable(header) for header in headers]
        rows = [[printable(c) if isinstance(c, str) else c for c in row] for row in rows]
    write_csv(sys.stdout, headers, rows)


def write_csv(file: TextIO, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write rows as CSV."""
    import csv

    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)


def show_json(data: object) -> None:
    """Print JSON: sorted, indented by two; NaN and infinities are strings."""
    import json

    plain = json_safe(data)
    text = json.dumps(plain, indent=2, sort_keys=True, default=str, ensure_ascii=False)
    if not text.isprintable():  # as escapes they mean the same, and steer no terminal
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    if os.environ.get("DET_CLI_COLORIZE", "").lower() in ("1", "true") and use_colour(sys.stdout):
        text = _JSON_NAME.sub(lambda found: click.style(found[0], fg="blue"), text)
    click.echo(text)


def time_text(seconds: float | None, *, utc: bool = False) -> str:
    """Write a moment: local time, or UTC."""
    if seconds is None:
        return ""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return (moment if utc else moment.astimezone()).strftime("%Y-%m-%d %H:%M:%S%z")


def iso_time(seconds: float | None) -> str | None:
    """Write a moment for programs: ISO 8601 in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")


def duration_text(started: float | None, ended: float | None, now: float) -> str:
    """Write how long something took, or has taken so far: `4.2s`, `3m 20s`, `2h 05m`, `3d 04h`."""
    if started is None:
        return ""
    seconds = max(0.0, (now if ended is None else ended) - started)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02}h"
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {seconds:02}s" if minutes else f"{seconds}s"


def size_text(num_bytes: float) -> str:
    """Write a size with three digits: `1.21 MB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(num_bytes) < 999.5 or unit == "TB":
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    raise AssertionError


def counted(count: int, what: str) -> str:
    """Write `1 file`, `2 files`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def hparams_text(values: object) -> str:
    """Write hyperparameters on one line, as JSON; secrets are masked."""
    import json

    from determined.config import masked_hparams

    shown = masked_hparams(values)
    return json.dumps(shown, sort_keys=True, default=str, ensure_ascii=False)


def brief(values: dict[str, Any]) -> str:
    """Hyperparameters or metrics for a reader: `lr 0.0218653, layers 3`; secrets are masked."""
    from determined.config import masked_hparams

    def text(value: object) -> str:
        return printable(value if isinstance(value, (int, float, str)) else hparams_text(value))

    return ", ".join(f"{name} {text(v)}" for name, v in sorted(masked_hparams(values).items()))


def percent(share: float | None) -> str:
    """Write progress from 0 to 1 as `12.3%`."""
    return "" if share is None else f"{100 * share:.1f}%"
