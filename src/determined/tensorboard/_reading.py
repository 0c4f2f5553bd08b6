"""Read event files that anybody may have written: one record at a time, and nothing is trusted.

A file is a sequence of records: a length, its checksum, a protobuf `Event`, its checksum. A record
whose content is damaged or too large is skipped; where a length is damaged or the file ends early,
reading ends. Protobuf is read field by field, so that a message cannot ask for memory.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from determined._os.regular_file import open_regular
from determined.tensorboard._checksum import masked_crc32c

PATTERN = "*tfevents*"
MOST_RECORD_BYTES = 32 << 20
_HEAD = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_MOST_VALUES_OF_RECORD = 10_000
_LARGEST_STEP = 2**63 - 1

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
Field = tuple[int, int, Any]  # number, wire type, and an int or a memoryview by that type


class Place(NamedTuple):
    """Where the content of a record is."""

    offset: int
    length: int


@dataclass(frozen=True)
class Value:
    """A value of a summary: what kind it is, and its message, not decoded yet.

    `kind` is `scalar`, `image`, `histogram`, `tensor` (see `plugin`) or another field's number.
    """

    tag: str
    kind: str
    content: memoryview
    plugin: str = ""
    plugin_content: bytes = b""


@dataclass(frozen=True)
class Event:
    """One record: when, at which step, and what."""

    time: float
    step: int
    values: list[Value]


_KINDS = {2: "scalar", 4: "image", 5: "histogram", 8: "tensor"}


def event_files(folder: Path) -> list[Path]:
    """The event files of a folder, oldest first; not those of folders in it."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if "tfevents" in entry.name]
    except OSError:
        return []
    return [folder / name for name in sorted(names)]


def places(file: BinaryIO, start: int = 0) -> Iterator[Place]:
    """The records from an offset on, as far as they are whole. Their contents are not checked."""
    size = os.fstat(file.fileno()).st_size
    while True:
        file.seek(start)
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return
        length, checksum = _HEAD.unpack(head)
        if masked_crc32c(head[:8]) != checksum or start + length + 16 > size:
            return
        yield Place(start + _HEAD.size, length)
        start += length + _HEAD.size + _CRC.size


def end_of(place: Place) -> int:
    """Where the next record begins."""
    return place.offset + place.length + _CRC.size


def read_record(file: BinaryIO, place: Place, *, check: bool = True) -> bytes | None:
    """The content of a record; None if it is too large, damaged or gone."""
    if place.length > MOST_RECORD_BYTES:
        return None
    file.seek(place.offset)
    data = file.read(place.length + _CRC.size)
    if len(data) < place.length + _CRC.size:
        return None
    content, (checksum,) = data[: -_CRC.size], _CRC.unpack(data[-_CRC.size :])
    if check and masked_crc32c(content) != checksum:
        return None
    return content


def read_events(path: Path) -> Iterator[Event]:
    """The events of a file that can be read, in order."""
    try:
        with open_regular(path) as file:
            for place in places(file):
                content = read_record(file, place)
                event = None if content is None else parse_event(content)
                if event is not None:
                    yield event
    except OSError:
        return


def parse_event(content: bytes) -> Event | None:
    """The event of a record; None if it is none."""
    time, step, values = 0.0, 0, []
    try:
        for number, kind, field in fields(memoryview(content)):
            if number == 1 and kind == _FIXED64:
                (time,) = struct.unpack("<d", field)
            elif number == 2 and kind == _VARINT:
                step = int(field)
                step = step - 2**64 if step > _LARGEST_STEP else step
            elif number == 5 and kind == _BYTES:
                values += _values(field)
    except ValueError:
        return None
    if not 0 <= time < 253_402_300_799.0:
        time = 0.0
    return Event(time, step, values)


def _values(summary: memoryview) -> list[Value]:
    found = []
    for number, kind, field in fields(summary):
        if number == 1 and kind == _BYTES:
            found.append(_value(field))
            if len(found) > _MOST_VALUES_OF_RECORD:
                raise ValueError("too many values")
    return found


def _value(message: memoryview) -> Value:
    tag, kind_name, content = "", "", memoryview(b"")
    plugin, plugin_content = "", b""
    for number, kind, field in fields(message):
        if number == 1 and kind == _BYTES:
            tag = _text(field)
        elif number in _KINDS and kind in (_BYTES, _FIXED32):
            kind_name, content = _KINDS[number], field
        elif number == 9 and kind == _BYTES:
            plugin, plugin_content = _plugin(field)
    return Value(tag, kind_name, content, plugin, plugin_content)


def _plugin(metadata: memoryview) -> tuple[str, bytes]:
    name, content = "", b""
    for number, kind, field in fields(metadata):
        if number == 1 and kind == _BYTES:
            for inner, inner_kind, value in fields(field):
                if inner == 1 and inner_kind == _BYTES:
                    name = _text(value)
                elif inner == 2 and inner_kind == _BYTES:
                    content = bytes(value)
    return name, content


def fields(message: memoryview) -> Iterator[Field]:
    """The fields of a protobuf message; ValueError if it is none."""
    position, end = 0, len(message)
    while position < end:
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _varint(message, position)
            yield number, kind, value
            continue
        if kind == _FIXED64:
            length = 8
        elif kind == _FIXED32:
            length = 4
        elif kind == _BYTES:
            length, position = _varint(message, position)
        else:
            raise ValueError(f"wire type {kind}")
        if position + length > end:
            raise ValueError("a field goes beyond its message")
        yield number, kind, message[position : position + length]
        position += length


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if position >= len(message):
            raise ValueError("a number ends early")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise ValueError("a number is too long")


def _text(field: memoryview, most: int = 1000) -> str:
    return bytes(field[:most]).decode("utf-8", "replace")
