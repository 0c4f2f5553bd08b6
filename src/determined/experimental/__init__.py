"""Conveniences around the training library that may still change.

`test_one_batch` tries a trial class on a single batch; `client` holds the names of the platform's
client. Importing this package imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from determined.experimental._test_one_batch import test_one_batch

__all__ = ["test_one_batch"]


def __getattr__(name: str) -> Any:
    if name == "test_one_batch":
        return importlib.import_module("determined.experimental._test_one_batch").test_one_batch
    if name == "client" or not name.startswith("_"):
        client = importlib.import_module("determined.experimental.client")
        if name == "client":
            return client
        if name in client.CLASSES:
            return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "client"})
