"""Tables on the terminal, and the same rows as CSV or JSON."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, Literal, TextIO, TypeVar

import click

from determined._contracts.json_numbers import json_safe
from determined._os.printable import printable as harmless
from determined.cli._commands.errors import use_colour

Output = Literal["table", "csv", "json"]
_NARROWEST = 6
_FEW_ROWS = 3
_SAYS_NOTHING = ("", None, "default")
_WHOLE = re.compile(r"\d\d-\d\d \d\d:\d\d$|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_SECONDS = re.compile(r"^\d{4}-(\d\d-\d\d \d\d:\d\d):\d\d[+-]\d{4}$")
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
) -> None:
    """Print rows in one of the forms; `data` is what JSON shows instead of the rows.

    With `in_full`, a few rows that are too wide for the terminal become lists instead of being cut.
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
            click.echo(fitted(headers, rows, width, in_full=in_full))


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


def table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None
) -> str:
    """Lay out a table; with `width`, the widest columns are cut until it fits."""
    cells = [[printable(cell) for cell in row] for row in rows]
    numeric = [
        bool(rows) and all(isinstance(row[i], (int, float)) or row[i] is None for row in rows)
        for i in range(len(headers))
    ]
    lines = [list(map(printable, headers)), *cells]
    columns = range(len(headers))
    widths = [max(columns_of(line[i]) for line in lines) for i in columns]
    if width is not None:
        whole = [
            max(_NARROWEST, *(columns_of(line[i]) for line in cells if _WHOLE.match(line[i])), 0)
            for i in columns
        ]
        room = max(0, width - 3 * len(widths) + 1)
        widths = _fitting([min(size, room) for size in widths], whole, room)
    laid_out = [
        " | ".join(
            _padded(cell, size, right)
            for cell, size, right in zip(line, widths, numeric, strict=True)
        )
        for line in lines
    ]
    rule = "+".join("-" * (size + 2) for size in widths)
    return "\n".join([f" {laid_out[0]}", rule, *(f" {line}".rstrip() for line in laid_out[1:])])


def fitted(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    width: int,
    *,
    in_full: bool = False,
) -> str:
    """Lay out a table for a terminal; what is too wide loses seconds, idle columns, then text.

    With `in_full`, or where even that does not help, each of a few rows becomes a list.
    """
    text = table(headers, rows)
    if _width(text) <= width:
        return text
    rows = [[_SECONDS.sub(r"\1", c) if isinstance(c, str) else c for c in row] for row in rows]
    used = [i for i in range(len(headers)) if any(row[i] not in _SAYS_NOTHING for row in rows)]
    if rows:
        headers = [headers[i] for i in used]
        rows = [[row[i] for i in used] for row in rows]
    is_few = len(rows) <= _FEW_ROWS
    text = table(headers, rows, None if in_full and is_few else width)
    return _records(headers, rows, width) if _width(text) > width and is_few else text


def _width(text: str) -> int:
    return max(columns_of(line) for line in text.splitlines())


def _records(headers: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> str:
    """Each row as lines of names and values, with a rule between rows."""
    names = [printable(header) for header in headers]
    left = max(columns_of(name) for name in names)
    room = max(_NARROWEST, width - left - 5)
    blocks = [
        "\n".join(
            f" {_padded(name, left, False)} | {_cut(printable(cell), room)}".rstrip()
            for name, cell in zip(names, row, strict=True)
        )
        for row in rows
    ]
    rule = "-" * (left + 2) + "+" + "-" * (min(width, left + 40) - left - 3)
    return f"\n{rule}\n".join(blocks)


def _cut(text: str, size: int) -> str:
    return _padded(text, size, False).rstrip() if columns_of(text) > size else text


def _fitting(widths: list[int], least: list[int], room: int) -> list[int]:
    """Narrow the widest column, again and again, until all fit or none can be narrower.

    Times and ids, which say nothing when cut, stay whole as long as anything else can give way.
    """
    widths = list(widths)
    for floors in (least, [_NARROWEST] * len(widths)):
        while sum(widths) > room:
            spare = [width - floor for width, floor in zip(widths, floors, strict=True)]
            loose = [i for i, rest in enumerate(spare) if rest > 0]
            if not loose:
                break
            widths[max(loose, key=lambda i: widths[i])] -= 1
    return widths


def printable(cell: object) -> str:
    """One line of printable text: what users wrote must not steer the terminal."""
    if cell is None:
        return ""
    return harmless(f"{cell:.6g}" if isinstance(cell, float) else str(cell))


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    wide = (2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
    return sum(0 if unicodedata.combining(c) else w for c, w in zip(text, wide, strict=True))


def _padded(text: str, size: int, right: bool) -> str:
    if columns_of(text) > size:
        taken = itertools.accumulate(columns_of(c) for c in text)
        text = text[: sum(1 for _ in itertools.takewhile(lambda n: n < size, taken))] + "…"
    space = " " * (size - columns_of(text))
    return space + text if right else text + space


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


def percent(share: float | None) -> str:
    """Write progress from 0 to 1 as `12.3%`."""
    return "" if share is None else f"{100 * share:.1f}%"
