"""What all objects of the client have in common."""

from __future__ import annotations

import abc
import enum
import html
from datetime import datetime, timezone
from typing import Any, TypeVar

from determined.experimental._client.session import Session

Made = TypeVar("Made", bound="StoredObject")


class StoredObject(abc.ABC):
    """A snapshot of stored values; `reload()` reads the current ones.

    Two objects are equal if they represent the same record of the same home.
    """

    _session: Session

    @classmethod
    def _of(cls: type[Made], record: Any, session: Session) -> Made:
        """Build the object from a record that was already read."""
        made = cls.__new__(cls)
        made._session = session
        made._hydrate(record)
        return made

    @abc.abstractmethod
    def _hydrate(self, record: Any) -> None:
        """Take over the values of a record."""

    @abc.abstractmethod
    def reload(self) -> None:
        """Read the current values."""

    @abc.abstractmethod
    def _identity(self) -> Any:
        """What identifies it among objects of its class."""

    @abc.abstractmethod
    def _facts(self) -> dict[str, Any]:
        """What its repr shows, in this order."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StoredObject)
            and type(other) is type(self)
            and other._identity() == self._identity()
            and other._session == self._session
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._identity()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_short(value)}" for name, value in self._facts().items())
        return f"{type(self).__name__}({shown})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(_text(value))}</td></tr>"
            for name, value in self._facts().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def as_datetime(seconds: float | None) -> datetime | None:
    """A time of the store, with its time zone."""
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)


def _short(value: Any) -> str:
    return value.name if isinstance(value, enum.Enum) else repr(value)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S%z")
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(map(str, sorted(value, key=str)))
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_text(inner)}" for key, inner in value.items())
    if isinstance(value, enum.Enum):
        return value.name
    return "" if value is None else str(value)
