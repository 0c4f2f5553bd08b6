"""Read numpy arrays and numbers from untrusted pickles.

numpy's own functions for this trust their arguments: a made-up dtype is enough to have it take
bytes of the file for pointers to objects. These stand-ins take numbers, text and bytes only, and
check every size.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection
from typing import Any

import numpy as np

KINDS = "biufcSU"


class _DType:
    """Stands for `numpy.dtype` while a file is read."""

    def __init__(self, code: str, align: bool = False, copy: bool = True) -> None:
        if not isinstance(code, str) or len(code) > 16 or np.dtype(code).kind not in KINDS:
            raise ValueError(f"numpy data of type {code!r} is not read")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, byte_order, sub_type, names, fields, item_size, *_ = state
        if sub_type is not None or names is not None or fields is not None:
            raise ValueError("numpy data with fields is not read")
        if self.dtype.kind in "SU":
            width = 4 if self.dtype.kind == "U" else 1
            self.dtype = np.dtype(f"{self.dtype.kind}{item_size // width}")
        if byte_order == ">":
            self.dtype = self.dtype.newbyteorder(">")


class _Array:
    """Stands for `numpy.ndarray`; `value` is the array once its state came."""

    def __init__(self) -> None:
        self.value = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, data = state
        if not isinstance(dtype, _DType) or not isinstance(data, bytes):
            raise ValueError("numpy arrays of objects are not read")
        if len(data) != math.prod(shape) * dtype.dtype.itemsize:
            raise ValueError(f"a numpy array of shape {shape} came with {len(data):,} bytes")
        array = np.frombuffer(data, dtype.dtype).reshape(shape, order="F" if is_fortran else "C")
        self.value = array.copy(order="K")  # the bytes are read-only


def _reconstruct(kind: object, shape: object, type_code: object) -> _Array:
    return _Array()


def _scalar(dtype: _DType, data: bytes) -> Any:
    if len(data) != dtype.dtype.itemsize:
        raise ValueError(f"a number of type {dtype.dtype} came with {len(data)} bytes")
    return np.frombuffer(data, dtype.dtype)[0]


def _no_bytes() -> bytes:
    """What the data of an empty array is pickled as."""
    return b""


def stand_ins() -> list[Any]:
    """Return what `torch.serialization.add_safe_globals` takes, under the names of all numpys."""
    named: list[Any] = [(_Array, "numpy.ndarray"), (_DType, "numpy.dtype")]
    named += [(_no_bytes, "builtins.bytes"), (_no_bytes, "__builtin__.bytes")]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        named += [(_reconstruct, f"{module}._reconstruct"), (_scalar, f"{module}.scalar")]
    return named


def real_arrays(value: Any, trusted: Collection[Any] = ()) -> Any:
    """Put the arrays in the place of their stand-ins, in dictionaries, lists and tuples, and in the
    attributes of objects of `trusted` classes.
    """
    return _RealArrays(trusted).of(value)


class _RealArrays:
    """A list may stand in many places of a pickle, or in itself: it is looked at once."""

    def __init__(self, trusted: Collection[Any]) -> None:
        self._trusted = trusted
        self._seen: dict[int, Any] = {}
        self._kept: list[Any] = []  # so that no other object gets the same identity

    def of(self, value: Any) -> Any:
        if isinstance(value, _Array):
            return value.value
        if isinstance(value, _DType):
            return value.dtype
        is_trusted = type(value) in self._trusted and hasattr(value, "__dict__")
        if not is_trusted and not isinstance(value, (dict, list, tuple)):
            return value
        if id(value) not in self._seen:
            self._kept.append(value)
            self._seen[id(value)] = value
            self._seen[id(value)] = self._inside(value)
        return self._seen[id(value)]

    def _inside(self, value: Any) -> Any:
        if isinstance(value, dict):
            for key, entry in value.items():
                value[key] = self.of(entry)
        elif isinstance(value, list):
            value[:] = [self.of(entry) for entry in value]
        elif type(value) is tuple:
            entries = tuple(self.of(entry) for entry in value)
            return value if all(map(operator.is_, entries, value)) else entries
        if hasattr(value, "__dict__"):
            self.of(vars(value))
        return value
