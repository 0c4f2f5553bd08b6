"""Validate arguments: an error names the argument and what it got instead."""

from __future__ import annotations

import math
import numbers
import os
import sys
from typing import Any

import numpy as np

from determined.pytorch._schedule import is_whole_number


def check_kind(
    name: str, value: Any, types: type | tuple[type, ...], expected: str, optional: bool = True
) -> None:
    """Raise unless the value is of these types, or None where that is allowed."""
    if not (optional and value is None) and not isinstance(value, types):
        raise TypeError(f"`{name}` must be {expected}, got {value!r}.")


def check_flag(name: str, value: Any) -> None:
    """Raise unless the value is a switch. Text is none: "False" would be true."""
    check_kind(name, value, (bool, int, np.bool_), "True or False")


def check_count(name: str, value: Any, at_least: int = 0, optional: bool = False) -> None:
    """Raise unless the value is an integer, and not a smaller one."""
    if optional and value is None:
        return
    if not is_whole_number(value):
        raise TypeError(f"`{name}` must be an integer, got {value!r}.")
    if not at_least <= value <= sys.maxsize:
        raise ValueError(f"`{name}` must be at least {at_least}, got {value!r}.")


def check_number(name: str, value: Any, at_least: float = 0) -> None:
    """Raise unless the value is a finite number, and not a smaller one."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"`{name}` must be a number, got {value!r}.")
    if not math.isfinite(value) or value < at_least:
        raise ValueError(f"`{name}` must be at least {at_least} and finite, got {value!r}.")


def check_choice(name: str, value: Any, choices: tuple[str | None, ...]) -> None:
    """Raise unless the value is one of the words."""
    if not (value is None or isinstance(value, str)) or value not in choices:
        words = " or ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be {words}, got {value!r}.")


def check_path(name: str, value: Any, optional: bool = True) -> None:
    """Raise unless the value may name a file."""
    check_kind(name, value, (str, os.PathLike), "a path", optional)
    if value is not None and "\0" in str(value):
        raise ValueError(f"`{name}` must be a path, which has no null character, got {value!r}.")


def check_callable(name: str, value: Any) -> None:
    """Raise unless the value is a function or the like, or None."""
    if value is not None and not callable(value):
        raise TypeError(f"`{name}` must be a function, got {value!r}.")


def check_iterable(name: str, value: Any) -> None:
    """Raise unless the value can be iterated; it is not."""
    if not has_method(value, "__iter__") and not has_method(value, "__getitem__"):
        raise TypeError(f"`{name}` must be iterable, got {value!r}.")


def has_method(value: Any, name: str) -> bool:
    """Say whether the type has the method, as Python's own operators look for it."""
    is_single = getattr(value, "ndim", 1) == 0  # an array without any dimension
    return not is_single and any(name in vars(base) for base in type(value).__mro__)


def check_methods(name: str, value: Any, methods: tuple[str, ...], expected: str) -> None:
    """Raise unless the value has these methods."""
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if missing or isinstance(value, type):
        raise TypeError(f"`{name}` must be {expected}, got {value!r}.")
