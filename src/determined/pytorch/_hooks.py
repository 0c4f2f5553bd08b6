"""Which callbacks fill in which hook: found once, so that a hook nobody wants costs nothing."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from determined import util
from determined.pytorch._callback import PyTorchCallback

logger = logging.getLogger("determined.pytorch")

_HOOKS = [name for name in vars(PyTorchCallback) if name.startswith("on_")]


class Hooks:
    """Calls the callbacks that override a hook, in their order."""

    def __init__(self, callbacks: Mapping[str, PyTorchCallback]) -> None:
        self._calls: dict[str, list[Callable[..., None]]] = {
            name: [
                getattr(callback, name)
                for callback in callbacks.values()
                if util.is_overridden(getattr(callback, name, None), PyTorchCallback)
            ]
            for name in _HOOKS
        }
        self._calls["on_training_epoch_start"] = [
            _with_epoch(call) for call in self._calls["on_training_epoch_start"]
        ]

    def of(self, hook: str) -> list[Callable[..., None]]:
        """Return the methods to call for a hook."""
        return self._calls[hook]

    def call(self, hook: str, *args: Any, **kwargs: Any) -> None:
        """Call a hook on all callbacks that override it."""
        for method in self._calls[hook]:
            method(*args, **kwargs)


def _with_epoch(method: Callable[..., None]) -> Callable[[int], None]:
    """Let old callbacks define `on_training_epoch_start(self)` without the epoch."""
    if inspect.signature(method).parameters:
        return method

    def call(epoch_idx: int) -> None:
        logger.warning(
            f"{getattr(method, '__qualname__', 'on_training_epoch_start')} should take "
            "`epoch_idx`; the form "
            "without it is deprecated."
        )
        method()

    return call
