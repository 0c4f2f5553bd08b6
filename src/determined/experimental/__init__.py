"""The Python client of the platform, and conveniences that may still change.

`client` creates and follows experiments; its classes can be imported from here, too.
`test_one_batch` tries a trial class on a single batch. Importing this package imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from determined.experimental._test_one_batch import test_one_batch

__all__ = ["test_one_batch"]

_MODULES = {
    "client": "determined.experimental.client",
    "checkpoint": "determined.experimental._client.checkpoint",
    "metrics": "determined.experimental._client.metrics",
    "model": "determined.experimental._client.model",
}


def __getattr__(name: str) -> Any:
    if name == "test_one_batch":
        return importlib.import_module("determined.experimental._test_one_batch").test_one_batch
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if not name.startswith("_"):
        client = importlib.import_module(_MODULES["client"])
        if name in client.__all__ and isinstance(getattr(client, name), type):
            return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
