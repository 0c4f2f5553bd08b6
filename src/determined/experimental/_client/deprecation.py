"""Deprecated names: they still work, and say what to use instead."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def deprecated(replacement: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function warn when called, and say so in its docstring."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def warning(*args: P.args, **kwargs: P.kwargs) -> T:
            warn_deprecated(f"{function.__qualname__}()", replacement, stacklevel=3)
            return function(*args, **kwargs)

        warning.__deprecated__ = replacement  # type: ignore[attr-defined]  # as PEP 702 names it
        warning.__doc__ = f"Deprecated: use {replacement}. {function.__doc__ or ''}".strip()
        return warning

    return decorate


def warn_deprecated(what: str, replacement: str, stacklevel: int = 2) -> None:
    """Warn the caller's caller."""
    warnings.warn(
        f"{what} is deprecated: use {replacement}.", FutureWarning, stacklevel=stacklevel + 1
    )
