"""Observers inside a fit: the time profile, and the trace of `verify_resume`.

The loop, the context, the callbacks, the data and the saver hand their calls to `watch` and call
what they get back. By default that is the call itself, so a run that nobody watches pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

if TYPE_CHECKING:
    from determined.pytorch._callback import PyTorchCallback

P = ParamSpec("P")
R = TypeVar("R")

Part = Literal[
    "data",
    "copy",
    "train_batch",
    "backward",
    "optimizer",
    "scheduler",
    "callbacks",
    "metrics",
    "validation",
    "checkpoint",
    "background save",
]


class Observer:
    """Sees nothing and changes nothing; subclasses override what they want to see."""

    def watch(self, part: Part, call: Callable[P, R]) -> Callable[P, R]:
        """Return what is to be called in the place of `call`, which does the work of a part."""
        return call

    def callbacks(self, given: dict[str, PyTorchCallback]) -> dict[str, PyTorchCallback]:
        """Return the callbacks of the run: those of the trial, and any before and after them."""
        return given

    def indices(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Return the samples of each of this rank's training batches, where an order has them."""
        return batches


UNOBSERVED = Observer()
