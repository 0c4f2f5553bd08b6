"""Tables as text: aligned, harmless, and as wide as the terminal."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import click

from determined._os.printable import printable as harmless

_Rows: TypeAlias = Sequence[Sequence[object]]

_NARROWEST = 6
_ROOMY = 28  # a text this long tells enough: shorter than that it is not cut to save a column
_FEW_ROWS = 3
_FULL_DIGITS = 6
_FEW_DIGITS = 3
_SAYS_NOTHING = ("", None, "default")
_ALWAYS_SHOWN = re.compile(r"(Name|State|Best\b.*)$")
_OF_STATES = re.compile(r"(.* )?State$|Checkpoint$")
_COLOURS = {
    "COMPLETED": "green",
    "RUNNING": "cyan",
    "ACTIVE": "cyan",
    "QUEUED": "yellow",
    "PAUSED": "yellow",
    "CANCELED": "magenta",
    "ERROR": "red",
    "DELETE_FAILED": "red",
    "DELETED": "bright_black",
}
_WHOLE = re.compile(r"\d\d-\d\d \d\d:\d\d$|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_SECONDS = re.compile(r"^\d{4}-(\d\d-\d\d \d\d:\d\d):\d\d[+-]\d{4}$")


def table(
    headers: Sequence[str],
    rows: _Rows,
    width: int | None = None,
    *,
    digits: int = _FULL_DIGITS,
    colours: bool = False,
) -> str:
    """Lay out a table; with `width`, the widest columns are cut until it fits."""
    cells = [[printable(cell, digits) for cell in row] for row in rows]
    numeric = [
        bool(rows) and all(isinstance(row[i], (int, float)) or row[i] is None for row in rows)
        for i in range(len(headers))
    ]
    lines = [list(map(printable, headers)), *cells]
    widths = _widths(lines)
    if width is not None:
        whole = [
            max(_NARROWEST, *(columns_of(line[i]) for line in cells if _WHOLE.match(line[i])), 0)
            for i in range(len(headers))
        ]
        room = max(0, width - 3 * len(widths) + 1)
        widths = _fitting([min(size, room) for size in widths], whole, room)
    padded = [
        [
            _padded(cell, size, right)
            for cell, size, right in zip(line, widths, numeric, strict=True)
        ]
        for line in lines
    ]
    if colours:
        padded[1:] = [list(map(_coloured, headers, line)) for line in padded[1:]]
    rule = "+".join("-" * (size + 2) for size in widths)
    head, *body = (f" {' | '.join(line)}" for line in padded)
    return "\n".join([head, rule, *(line.rstrip() for line in body)])


def fitted(
    headers: Sequence[str],
    rows: _Rows,
    width: int,
    *,
    in_full: bool = False,
    spare: Sequence[str] = (),
    colours: bool = False,
) -> str:
    """Lay out a table for a terminal, with three digits of each number.

    What is too wide loses seconds, then columns: idle ones, those that are the same in all rows,
    those in `spare` from the first to the last. Then texts are cut. With `in_full`, or where even
    that does not help, each of a few rows becomes a list.
    """
    if _natural_width(headers, rows) > width:
        rows = [[_SECONDS.sub(r"\1", c) if isinstance(c, str) else c for c in row] for row in rows]
        headers, rows = _without_idle(headers, rows)
        if not (in_full and len(rows) <= _FEW_ROWS):
            headers, rows = _without_spare(headers, rows, width, spare)
        elif _natural_width(headers, rows) > width:
            return _records(headers, rows, width, colours)
    text = table(headers, rows, width, digits=_FEW_DIGITS)
    if _width(text) > width and len(rows) <= _FEW_ROWS:
        return _records(headers, rows, width, colours)
    return table(headers, rows, width, digits=_FEW_DIGITS, colours=colours)


def _without_idle(headers: Sequence[str], rows: _Rows) -> tuple[Sequence[str], _Rows]:
    if not rows:
        return headers, rows
    used = [i for i in range(len(headers)) if any(row[i] not in _SAYS_NOTHING for row in rows)]
    return [headers[i] for i in used], [[row[i] for i in used] for row in rows]


def _without_spare(
    headers: Sequence[str], rows: _Rows, width: int, spare: Sequence[str]
) -> tuple[Sequence[str], _Rows]:
    """Leave out columns until the rest fits, with long texts cut but readable."""
    shown = list(range(len(headers)))
    for candidate in _dispensable(headers, rows, width, spare):
        chosen = [headers[i] for i in shown], [[row[i] for i in shown] for row in rows]
        if _natural_width(*chosen, at_most=_ROOMY) <= width:
            break
        if candidate in shown:
            shown.remove(candidate)
    return [headers[i] for i in shown], [[row[i] for i in shown] for row in rows]


def _dispensable(
    headers: Sequence[str], rows: _Rows, width: int, spare: Sequence[str]
) -> Iterator[int]:
    """The columns that are left out first, in this order; some come twice."""
    others = [i for i, h in enumerate(headers) if i and not _ALWAYS_SHOWN.match(h)]
    named = [i for name in spare for i in others if headers[i] == name]
    by_use = [*named, *(i for i in reversed(others) if i not in named)]
    if len(rows) > 1:
        yield from (i for i in by_use if len({str(row[i]) for row in rows}) == 1)
    yield from named
    # Only where there are so many columns that nothing readable would be left of each.
    if len(headers) * (_NARROWEST + 3) > width:
        yield from (i for i in by_use if i not in named)


def _natural_width(headers: Sequence[str], rows: _Rows, at_most: int | None = None) -> int:
    """How wide a table would be, its texts cut to `at_most`."""
    cells = [[printable(cell, _FEW_DIGITS) for cell in row] for row in rows]
    widths = _widths([list(map(printable, headers)), *cells])
    return sum(w if at_most is None else min(w, at_most) for w in widths) + 3 * len(widths) - 1


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(columns_of, column)) for column in zip(*lines, strict=True)]


def _width(text: str) -> int:
    return max(columns_of(line) for line in text.splitlines())


def _records(headers: Sequence[str], rows: _Rows, width: int, colours: bool) -> str:
    """Each row as lines of names and values, with a rule between rows."""
    names = [printable(header) for header in headers]
    left = max(columns_of(name) for name in names)
    room = max(_NARROWEST, width - left - 5)

    def line(name: str, cell: object) -> str:
        text = _cut(printable(cell, _FEW_DIGITS), room)
        text = _coloured(name, text) if colours else text
        return f" {_padded(name, left, False)} | {text}".rstrip()

    rule = "-" * (left + 2) + "+" + "-" * (min(width, left + 40) - left - 3)
    return f"\n{rule}\n".join("\n".join(map(line, names, row)) for row in rows)


def _coloured(header: str, cell: str) -> str:
    if not _OF_STATES.match(header):
        return cell
    return cell.replace(cell.rstrip(), state_text(cell.rstrip()), 1) if cell.strip() else cell


def state_text(state: str) -> str:
    """A state in its colour."""
    colour = _COLOURS.get(state, "yellow" if state.startswith("STOPPING") else None)
    return state if colour is None else click.style(state, fg=colour)


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


def printable(cell: object, digits: int = _FULL_DIGITS) -> str:
    """One line of printable text: what users wrote must not steer the terminal."""
    if cell is None:
        return ""
    return harmless(number_text(cell, digits) if isinstance(cell, float) else str(cell))


def number_text(value: float, digits: int = _FEW_DIGITS) -> str:
    """A number with so many digits, and all of those before the point up to a million."""
    if 10**digits <= abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


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
