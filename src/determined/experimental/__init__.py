"""Conveniences around the training library that may still change.

`test_one_batch` tries a trial class on a single batch. Importing this package imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from determined.experimental._test_one_batch import test_one_batch

__all__ = ["test_one_batch"]


def __getattr__(name: str) -> Any:
    if name == "test_one_batch":
        from determined.experimental._test_one_batch import test_one_batch

        return test_one_batch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
