"""Types of parameters: one declaration both checks a value and describes it in the schema.

Each is a frozen value with `parse` (text -> value, `BadValue` if it is invalid) and `schema`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import unquote

LARGEST_ID = 2**53 - 1  # the largest integer that a browser represents exactly


class BadValue(ValueError):
    """A parameter that cannot be used; the text says what was expected."""


class Kind(Protocol):
    """How a parameter is parsed and described."""

    def parse(self, text: str) -> Any:
        """Parse a text; BadValue if it is invalid."""

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the value."""


@dataclass(frozen=True)
class Integer:
    """An integer within limits."""

    minimum: int = 0
    maximum: int = LARGEST_ID

    def parse(self, text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,17}", text):
            raise BadValue(f"expected an integer, got {shown(text)}")
        value = int(text)
        if not self.minimum <= value <= self.maximum:
            raise BadValue(f"expected {self.minimum} to {self.maximum}, got {value}")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@dataclass(frozen=True)
class Number:
    """A finite number within limits."""

    minimum: float | None = None
    maximum: float | None = None

    def parse(self, text: str) -> float:
        try:
            value = float(text) if re.fullmatch(r"[-+.0-9eE]{1,40}", text) else math.nan
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BadValue(f"expected a number, got {shown(text)}")
        if self.minimum is not None and value < self.minimum:
            raise BadValue(f"expected at least {self.minimum}, got {value}")
        if self.maximum is not None and value > self.maximum:
            raise BadValue(f"expected at most {self.maximum}, got {value}")
        return value

    def schema(self) -> dict[str, Any]:
        limits = {"minimum": self.minimum, "maximum": self.maximum}
        return {"type": "number", **{k: v for k, v in limits.items() if v is not None}}


@dataclass(frozen=True)
class Flag:
    """0 or 1."""

    def parse(self, text: str) -> bool:
        if text not in ("0", "1"):
            raise BadValue(f"expected 0 or 1, got {shown(text)}")
        return text == "1"

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "enum": [0, 1]}


@dataclass(frozen=True)
class Text:
    """Any text, not too long; with a pattern, the whole of it must match."""

    longest: int = 500
    pattern: str | None = None
    shortest: int = 0

    def parse(self, text: str) -> str:
        if not self.shortest <= len(text) <= self.longest:
            raise BadValue(
                f"expected {self.shortest} to {self.longest} characters, got {len(text)}"
            )
        if "\0" in text:
            raise BadValue("expected text without a null character")
        if self.pattern is not None and not re.fullmatch(self.pattern, text):
            raise BadValue(f"expected text like {self.pattern}, got {shown(text)}")
        return text

    def schema(self) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "string", "maxLength": self.longest}
        if self.shortest:
            found["minLength"] = self.shortest
        found["pattern"] = f"^(?:{self.pattern})$" if self.pattern else "^[^\\x00]*$"
        return found


@dataclass(frozen=True)
class Choice:
    """One of a few words, or a word of an open family such as `hparam:NAME`."""

    words: tuple[str, ...]
    families: tuple[str, ...] = ()

    def parse(self, text: str) -> str:
        family, colon, name = text.partition(":")
        is_member = bool(colon and name) and family in self.families and "\0" not in text
        if text in self.words or (is_member and len(text) <= 500):
            return text
        words = [*self.words, *(f"{family}:NAME" for family in self.families)]
        raise BadValue(f"expected one of {', '.join(words)}, got {shown(text)}")

    def schema(self) -> dict[str, Any]:
        words: dict[str, Any] = {"type": "string", "enum": list(self.words)}
        if not self.families:
            return words
        pattern = f"^(?:{'|'.join(self.families)}):[^\\x00]{{1,400}}$"
        return {"anyOf": [words, {"type": "string", "pattern": pattern}]}


@dataclass(frozen=True)
class Many:
    """Several values of one type, joined by a separator."""

    of: Kind
    most: int = 200
    separator: str = ","
    least: int = 0

    def parse(self, text: str) -> list[Any]:
        parts = [part for part in text.split(self.separator) if part]
        if not self.least <= len(parts) <= self.most:
            raise BadValue(f"expected {self.least} to {self.most} values, got {len(parts)}")
        return [self.of.parse(part) for part in parts]

    def schema(self) -> dict[str, Any]:
        words = f"Up to {self.most} values with `{self.separator}` between them."
        longest = {"type": "string", "maxLength": 8000, "description": words}
        return longest | ({"minLength": 1} if self.least else {})


@dataclass(frozen=True)
class SeriesKey:
    """`TRIAL:GROUP:NAME`, or `TRIAL:GROUP:NAME:batches` for per-batch values.

    Each part is percent-encoded, so names may contain colons and semicolons.
    """

    def parse(self, text: str) -> tuple[int, str, str, bool]:
        parts = [unquote(part) for part in text.split(":")]
        of_batches = len(parts) == 4 and parts[3] == "batches"
        if len(parts) != 3 and not of_batches:
            raise BadValue(
                f"expected TRIAL:GROUP:NAME or TRIAL:GROUP:NAME:batches, got {shown(text)}"
            )
        group, name = (Text(200, shortest=1).parse(part) for part in parts[1:3])
        return Integer(1).parse(parts[0]), group, name, of_batches

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": "^[0-9]+:[^:;]+:[^:;]+(:batches)?$"}


def shown(text: str) -> str:
    """A text as quoted in an error: short, and on one line."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
