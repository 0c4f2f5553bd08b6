"""What values of event files hold: numbers, images, texts, histograms, hyperparameters.

Both forms are read: the older one of torch (a message per kind) and TensorFlow 2's, in which all of
them are tensors with the name of a plugin.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from determined.tensorboard._reading import _BYTES, _FIXED32, _FIXED64, _VARINT, Value, fields

_STRING_TYPE = 7
_NUMBERS = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 10: "?", 14: "<i2", 19: "<f2"}
_NUMBER_FIELDS = {5: "<f4", 6: "<f8"}
_MOST_NUMBERS = 1_000_000
_MOST_STRINGS = 1_000


@dataclass(frozen=True)
class Histogram:
    """Counts between limits: `limits` has one more entry than `counts`."""

    limits: list[float]
    counts: list[float]


def kind_of(value: Value) -> str | None:
    """`scalar`, `image`, `text` or `histogram`; None for anything else."""
    if value.kind in ("scalar", "image", "histogram"):
        return value.kind
    if value.kind == "tensor":
        plugins = {
            "scalars": "scalar",
            "images": "image",
            "text": "text",
            "histograms": "histogram",
        }
        return plugins.get(value.plugin)
    return None


def scalar_of(value: Value) -> float | None:
    """The number of a scalar; None if there is none."""
    found: float | None = _safely(lambda: _scalar(value))
    return found


def images_of(value: Value) -> list[bytes]:
    """The encoded images, of whatever format; none if they cannot be read."""
    return _safely(lambda: _images(value)) or []


def texts_of(value: Value) -> list[str]:
    """The texts; none if they cannot be read."""
    found = _safely(lambda: [bytes(text) for text in _strings(value.content)]) or []
    return [text.decode("utf-8", "replace") for text in found]


def histogram_of(value: Value) -> Histogram | None:
    """The histogram; None if it is none that can be drawn."""
    found: Histogram | None = _safely(lambda: _histogram(value))
    return found


def hparams_of(value: Value) -> dict[str, Any]:
    """The hyperparameters that `add_hparams` wrote."""
    if value.plugin != "hparams":
        return {}
    return _safely(lambda: dict(_hparams(memoryview(value.plugin_content)))) or {}


def _safely(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (ValueError, TypeError, struct.error, OverflowError):
        return None


def _scalar(value: Value) -> float | None:
    if value.kind == "scalar":
        return float(struct.unpack("<f", value.content)[0])
    numbers = _numbers(value.content)
    return float(numbers[0]) if len(numbers) == 1 else None


def _images(value: Value) -> list[bytes]:
    if value.kind == "image":
        return [bytes(f) for n, k, f in fields(value.content) if n == 4 and k == _BYTES]
    return [bytes(image) for image in list(_strings(value.content))[2:]]  # after width and height


def _histogram(value: Value) -> Histogram | None:
    if value.kind == "tensor":
        table = np.asarray(_numbers(value.content), float).reshape(-1, 3)
        limits, counts = [*table[:1, 0].tolist(), *table[:, 1].tolist()], table[:, 2].tolist()
    else:
        low, high, limits, counts = 0.0, 0.0, [], []  # what is not written is zero
        for number, kind, field in fields(value.content):
            if kind == _FIXED64 and number in (1, 2):
                (edge,) = struct.unpack("<d", field)
                low, high = (edge, high) if number == 1 else (low, edge)
            elif number == 6:
                limits += _packed(kind, field, "<f8")
            elif number == 7:
                counts += _packed(kind, field, "<f8")
        # Limits are upper ends, and the outermost ones are far beyond all values.
        limits = [min(max(limit, low), high) for limit in limits]
        limits = [low, *limits]
    if not counts or len(limits) != len(counts) + 1:
        return None
    if not all(map(math.isfinite, (*limits, *counts))) or min(counts) < 0:
        return None
    return Histogram(limits, counts)


def _packed(kind: int, field: Any, form: str) -> list[float]:
    if kind == _BYTES:
        size = np.dtype(form).itemsize
        if len(field) > _MOST_NUMBERS * size:
            raise ValueError("too many numbers")
        return [float(number) for number in np.frombuffer(field, form)]
    if kind in (_FIXED64, _FIXED32):
        return [float(np.frombuffer(field, form)[0])]
    raise ValueError("not a number")


def _numbers(tensor: memoryview) -> list[float]:
    """The numbers of a tensor message, without its shape."""
    form, content, listed = "", None, []
    for number, kind, field in fields(tensor):
        if number == 1 and kind == _VARINT:
            form = _NUMBERS.get(int(field), "")
        elif number == 4 and kind == _BYTES:
            content = field
        elif number in _NUMBER_FIELDS:
            listed += _packed(kind, field, _NUMBER_FIELDS[number])
        elif number in (7, 10, 11) and kind == _VARINT:
            listed.append(float(int(field)))
        if len(listed) > _MOST_NUMBERS:
            raise ValueError("too many numbers")
    if content is not None and form:
        return _packed(_BYTES, content, form)
    return listed


def _strings(tensor: memoryview) -> Iterator[memoryview]:
    """The strings of a tensor message."""
    found = 0
    for number, kind, field in fields(tensor):
        if number == 1 and kind == _VARINT and field != _STRING_TYPE:
            raise ValueError("not strings")
        if number == 8 and kind == _BYTES:
            found += 1
            if found > _MOST_STRINGS:
                return
            yield field


def _hparams(plugin_data: memoryview) -> Iterator[tuple[str, Any]]:
    for number, kind, start in fields(plugin_data):
        if number != 3 or kind != _BYTES:
            continue
        for inner, inner_kind, entry in fields(start):
            if inner != 1 or inner_kind != _BYTES:
                continue
            name, value = "", None
            for part, part_kind, content in fields(entry):
                if part == 1 and part_kind == _BYTES:
                    name = bytes(content).decode("utf-8", "replace")
                elif part == 2 and part_kind == _BYTES:
                    value = _plain(content)
            if name:
                yield name, value


def _plain(value: memoryview) -> Any:
    for number, kind, field in fields(value):
        if number == 2 and kind == _FIXED64:
            (number_value,) = struct.unpack("<d", field)
            return number_value if math.isfinite(number_value) else str(number_value)
        if number == 3 and kind == _BYTES:
            return bytes(field).decode("utf-8", "replace")
        if number == 4 and kind == _VARINT:
            return bool(field)
    return None
