"""The hooks that a callback may override, and which callbacks override which.

This is looked up once, so that unused hooks cost nothing.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from determined.pytorch._instrumentation.observer import UNOBSERVED, Observer
from determined.util import is_overridden

logger = logging.getLogger("determined.pytorch")


class PyTorchCallback:
    """Base class of callbacks; override the hooks you need.

    `trial.build_callbacks()` returns the instances by name; the name keys their state in
    checkpoints. Hooks run on every rank, in the order of that dictionary, unless said otherwise. A
    hook that no callback overrides costs nothing.
    """

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Run first, before the data loaders are built."""

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        """Run after a checkpoint is read, before it is restored; `checkpoint` may be edited."""

    def on_fork(self, changed: dict[str, tuple[Any, Any]]) -> None:
        """Run once where a fork leaves its parent, after the state is restored and changed.

        `changed` has the old and the new value of each changed hyperparameter. Not run for a fork
        that changes none, nor when it is continued.
        """

    def on_training_start(self) -> None:
        """Run after the state is restored, before the first validation or batch."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Run before the first batch of an epoch. Not run again when a run resumes inside it."""

    def on_training_batch_start(self, epoch_idx: int, batch_idx: int, batch: Any) -> None:
        """Run before `train_batch`, with the batch as `train_batch` gets it."""

    def on_training_batch_end(
        self, epoch_idx: int, batch_idx: int, metrics: dict[str, Any]
    ) -> None:
        """Run after `train_batch` and the learning-rate steps; metrics are still on the device."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """Run after the last batch of an epoch, before anything that is due on that batch."""

    def on_training_workload_end(
        self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]
    ) -> None:
        """Run after training metrics are reported, with the chief's values on every rank.

        Numbers that the chief's callbacks add to `avg_metrics` become part of that report.
        """

    def on_validation_start(self) -> None:
        """Run when a validation begins; models are already in evaluation mode."""

    def on_validation_epoch_start(self) -> None:
        """Run before the first `evaluate_batch`. Not run with `evaluate_full_dataset`."""

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        """Run after the last `evaluate_batch`, with this rank's metrics of each batch.

        They are reduced after this, so edits count.
        """

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        """Run before validation metrics are reported, with the chief's on every rank."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save in checkpoints.

        Every rank calls it: a rank whose state is not the chief's gets its own back.
        """
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; on another number of ranks, on the chief."""

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Run before a checkpoint is written; `checkpoint` may be edited. Chief only."""

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """Run when the files are written. Deprecated: use `on_checkpoint_write_end`. Chief only."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        """Run when the files are written, before they are stored; files may be added. Chief only.

        A callback that overrides this makes saves synchronous.
        """

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """Run when the checkpoint is stored.

        A callback that overrides this makes saves synchronous.
        """

    def on_trial_shutdown(self) -> None:
        """Run when `fit` ends for any reason, in reverse order of the callbacks."""


_HOOKS = [name for name in vars(PyTorchCallback) if name.startswith("on_")]


class Hooks:
    """Calls the callbacks that override a hook, in their order."""

    def __init__(
        self, callbacks: Mapping[str, PyTorchCallback], observer: Observer = UNOBSERVED
    ) -> None:
        self._calls: dict[str, list[Callable[..., None]]] = {
            name: [
                observer.watch("callbacks", _hook(callback, name))
                for callback in callbacks.values()
                if is_overridden(getattr(callback, name, None), PyTorchCallback)
            ]
            for name in _HOOKS
        }

    def of(self, hook: str) -> list[Callable[..., None]]:
        """Return the methods to call for a hook."""
        return self._calls[hook]

    def call(self, hook: str, *args: Any, **kwargs: Any) -> None:
        """Call a hook on all callbacks that override it."""
        for method in self._calls[hook]:
            method(*args, **kwargs)


def _hook(callback: PyTorchCallback, name: str) -> Callable[..., None]:
    """Return a method; old callbacks may have `on_training_epoch_start(self)` without the epoch."""
    method: Callable[..., None] = getattr(callback, name)
    if name != "on_training_epoch_start" or inspect.signature(method).parameters:
        return method

    def call(epoch_idx: int) -> None:
        logger.warning(
            f"{getattr(method, '__qualname__', name)} should take `epoch_idx`; the form without "
            "it is deprecated."
        )
        method()

    return call
