"""Per-batch metrics as columns of numbers: small on disk, and read without parsing."""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_LENGTH = struct.Struct("<I")
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Column:
    """The values of one metric: 8-byte floats or integers, or a list of any JSON values.

    `rows` are the batches that have a value; None means all of them.
    """

    values: array[float] | array[int] | list[Any]
    rows: list[int] | None = None

    @property
    def is_numeric(self) -> bool:
        """Whether the values are an array of numbers."""
        return isinstance(self.values, array)


@dataclass(frozen=True)
class BatchColumns:
    """What `count` batches reported, by metric name."""

    count: int
    columns: dict[str, Column]

    @classmethod
    def of(cls, batches: Sequence[dict[str, Any]]) -> BatchColumns:
        """Turn one dictionary per batch into columns."""
        names = dict.fromkeys(name for batch in batches for name in batch)
        return cls(len(batches), {name: _column(batches, name) for name in names})

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dictionary per batch, as reported."""
        batches: list[dict[str, Any]] = [{} for _ in range(self.count)]
        for name, column in self.columns.items():
            rows = range(self.count) if column.rows is None else column.rows
            for row, value in zip(rows, column.values, strict=True):
                batches[row][name] = value
        return batches

    def to_bytes(self) -> bytes:
        """A JSON table of contents, then the numbers as they are in memory (little-endian)."""
        contents: list[list[Any]] = []
        numbers = []
        for name, column in self.columns.items():
            if isinstance(column.values, array):
                contents.append([name, column.values.typecode, column.rows])
                numbers.append(_little_endian(column.values).tobytes())
            else:
                contents.append([name, column.values, column.rows])
        head = json.dumps([self.count, contents], separators=(",", ":")).encode()
        return b"".join((_LENGTH.pack(len(head)), head, *numbers))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> BatchColumns:
        """The inverse of `to_bytes`; ValueError if the parts do not fit together."""
        view = memoryview(data)
        start = _LENGTH.size
        (length,) = _LENGTH.unpack(view[:start])
        count, contents = json.loads(bytes(view[start : start + length]))
        position = start + length
        columns: dict[str, Column] = {}
        for name, kind, rows in contents:
            if not isinstance(kind, str):
                columns[name] = Column(kind, rows)
                continue
            size = 8 * (count if rows is None else len(rows))
            values: array[float] = array(kind)
            values.frombytes(view[position : position + size])
            if len(values) * 8 != size:
                raise ValueError(f"The column {name!r} is cut off.")
            columns[name] = Column(_little_endian(values), rows)
            position += size
        return cls(count, columns)


def _column(batches: Sequence[dict[str, Any]], name: str) -> Column:
    try:
        rows, values = None, [batch[name] for batch in batches]
    except KeyError:
        rows = [row for row, batch in enumerate(batches) if name in batch]
        values = [batches[row][name] for row in rows]
    kinds = set(map(type, values))
    if kinds == {float}:
        return Column(array("d", values), rows)
    if kinds == {int} and min(values) in _INT64 and max(values) in _INT64:
        return Column(array("q", values), rows)
    return Column(values, rows)


def _little_endian(values: array[Any]) -> array[Any]:
    if sys.byteorder == "big":  # pragma: no cover
        values = array(values.typecode, values)
        values.byteswap()
    return values
