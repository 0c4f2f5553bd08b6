"""Errors in a configuration and notes about it, and the line each belongs to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal

from determined._os.printable import printable

Path = tuple[str | int, ...]
"""The keys and list positions that lead to a value: `("searcher", "max_trials")`."""

Severity = Literal["error", "note"]

_LONGEST_SHOWN = 60


@dataclasses.dataclass(frozen=True)
class Place:
    """A line and a column (both from 1) of a file, and the text of that line."""

    line: int
    column: int
    text: str


@dataclasses.dataclass(frozen=True)
class Problem:
    """One error in a configuration, or one note about how it was read."""

    message: str
    path: Path = ()
    hint: str | None = None
    severity: Severity = "error"
    source: str = "configuration"
    place: Place | None = None
    points_at: Literal["key", "value"] = "value"

    def __str__(self) -> str:
        """One line: `config.yaml:5:3: searcher.max_trial: unknown key (did you mean ...?)`."""
        at = f":{self.place.line}:{self.place.column}" if self.place else ""
        path = f" {dotted(self.path)}:" if self.path else ""
        hint = f" ({self.hint})" if self.hint else ""
        kind = " note:" if self.severity == "note" else ""
        return printable(f"{self.source}{at}:{kind}{path} {self.message}{hint}")

    def render(self) -> str:
        """As `str`, with the line of the file below it and a caret under the place."""
        if self.place is None or not self.place.text.strip():
            return str(self)
        before = self.place.text[: self.place.column - 1]
        spaces = "".join("\t" if c == "\t" else " " for c in before)
        number = f"{self.place.line:5} | "
        line = printable(self.place.text, keep="\t")
        return f"{self}\n{number}{line}\n{' ' * 5} | {spaces}^"

    def to_json(self) -> dict[str, Any]:
        """Return the problem as data, always with the same keys."""
        return {
            "severity": self.severity,
            "source": self.source,
            "line": self.place.line if self.place else None,
            "column": self.place.column if self.place else None,
            "path": dotted(self.path),
            "message": self.message,
            "hint": self.hint,
        }


def dotted(path: Path) -> str:
    """Write a path the way people do: `log_policies[0].pattern`."""
    words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return words.lstrip(".")


def shown(value: object, *, inside: bool = False) -> str:
    """Show a value, short enough for a line; with `inside`, show the contents of a mapping."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        if inside and 0 < len(value) <= 2:
            return "{" + ", ".join(f"{k}: {shown(v)}" for k, v in value.items()) + "}"
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    try:
        text = repr(value)
    except ValueError:  # an int with too many digits to print
        return f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the closest known word, if one is close enough."""
    import difflib

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.65)
    return found[0] if found else None


def listed(words: Iterable[str]) -> str:
    """Join words as in a sentence: `a, b or c`."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
