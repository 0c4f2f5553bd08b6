"""Convert between rows and records: a record is a frozen dataclass whose fields are the columns.

Dictionaries and lists are stored as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Table(Generic[T]):
    """One table and the record type of its rows."""

    def __init__(self, name: str, record: type[T]) -> None:
        self.name = name
        self._record = record
        fields = dataclasses.fields(record)  # type: ignore[arg-type]  # records are dataclasses
        self.fields = tuple(field.name for field in fields)
        self.columns = ", ".join(f"{name}.{field}" for field in self.fields)
        self._json = {f.name for f in fields if str(f.type).startswith(("dict[", "list["))}
        decoders: list[Callable[[Any], Any] | None] = [
            json.loads if f.name in self._json else bool if str(f.type).startswith("bool") else None
            for f in fields
        ]
        self._decoders = [(i, decode) for i, decode in enumerate(decoders) if decode is not None]

    def record(self, row: Sequence[Any]) -> T:
        """The record of a row selected with `columns`."""
        values = list(row)
        for position, decode in self._decoders:
            if values[position] is not None:
                values[position] = decode(values[position])
        return self._record(*values)

    def is_readable(self, values: Mapping[str, Any]) -> bool:
        """Whether all JSON in a row can be parsed."""
        try:
            for name in self._json & values.keys():
                if values[name] is not None:
                    json.loads(values[name])
        except (TypeError, ValueError):
            return False
        return True

    def find(self, connection: sqlite3.Connection, where: str, *parameters: Any) -> T | None:
        """The first record, None if there is none."""
        sql = f"SELECT {self.columns} FROM {self.name} WHERE {where} LIMIT 1"
        row = connection.execute(sql, parameters).fetchone()
        return None if row is None else self.record(row)

    def select(self, connection: sqlite3.Connection, rest: str, *parameters: Any) -> list[T]:
        """The records selected by `rest` (WHERE, ORDER BY, LIMIT)."""
        sql = f"SELECT {self.columns} FROM {self.name} {rest}"
        return [self.record(row) for row in connection.execute(sql, parameters)]

    def insert(self, connection: sqlite3.Connection, values: Mapping[str, Any]) -> int:
        """Add a row, and return its number."""
        names = self._known(values)
        sql = f"INSERT INTO {self.name}({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        return int(connection.execute(sql, self._encoded(names, values)).lastrowid or 0)

    def update(
        self,
        connection: sqlite3.Connection,
        where: str,
        key: Iterable[Any],
        values: Mapping[str, Any],
    ) -> bool:
        """Set columns of the matching rows; False if there are none."""
        names = self._known(values)
        sql = f"UPDATE {self.name} SET {', '.join(f'{n}=?' for n in names)} WHERE {where}"
        return connection.execute(sql, [*self._encoded(names, values), *key]).rowcount > 0

    def _known(self, values: Mapping[str, Any]) -> list[str]:
        unknown = values.keys() - set(self.fields)
        assert not unknown, f"{self.name} has no columns {sorted(unknown)}"
        return list(values)

    def _encoded(self, names: list[str], values: Mapping[str, Any]) -> list[Any]:
        return [
            json.dumps(values[name])
            if name in self._json and values[name] is not None
            else values[name]
            for name in names
        ]


def read_searcher_state(
    connection: sqlite3.Connection, experiment_id: int
) -> dict[str, Any] | None:
    """The state of an experiment's searcher after its last event; not part of the record."""
    row = connection.execute(
        "SELECT searcher_state FROM experiment WHERE id=?", (experiment_id,)
    ).fetchone()
    state: dict[str, Any] | None = json.loads(row[0]) if row and row[0] else None
    return state
