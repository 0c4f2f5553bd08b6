"""Read numpy arrays and numbers from untrusted pickles.

numpy's own functions for this trust their arguments: a made-up dtype is enough to have it take
bytes of the file for pointers to objects. These stand-ins take numbers, text and bytes only, and
check every size.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

_KINDS = "biufcSU"


class _DType:
    """Stands for `numpy.dtype` while a file is read."""

    def __init__(self, code: str, align: bool = False, copy: bool = True) -> None:
        if not isinstance(code, str) or len(code) > 16 or np.dtype(code).kind not in _KINDS:
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


def real_arrays(value: Any, limit: int, trusted: Collection[Any] = ()) -> Any:
    """Put the arrays in the place of their stand-ins, in dictionaries, lists and tuples, and in the
    attributes of objects of `trusted` classes.

    A list may stand in many places of a pickle, and so unfold to any number of values. More than
    `limit` are refused.
    """
    seen = 0
    objects: set[int] = set()

    def real(value: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen > limit:
            raise ValueError(f"it expands to more than {limit:,} values")
        if isinstance(value, _Array):
            return value.value
        if isinstance(value, Mapping):
            for key, entry in value.items():
                new = real(entry)
                if new is not entry:
                    value[key] = new  # type: ignore[index]  # torch's safe loader makes dicts only
            return value
        if isinstance(value, list):
            value[:] = [real(entry) for entry in value]
            return value
        if type(value) is tuple:
            entries = tuple(real(entry) for entry in value)
            is_same = all(new is old for new, old in zip(entries, value, strict=True))
            return value if is_same else entries
        if type(value) in trusted and hasattr(value, "__dict__") and id(value) not in objects:
            objects.add(id(value))  # they may refer to each other
            real(vars(value))
        return value

    return real(value)
