"""A script bent to a replay: `init` and `fit` train some batches again, and are watched."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pdb
import sys
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from determined._contracts.replay_check import WITH
from determined._contracts.replay_span import ReplaySpan
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._checkpoint.forking.request import Fork
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._display.profile import ProfileOptions
from determined.pytorch._instrumentation.observer import Observer, Part
from determined.pytorch._instrumentation.overrides import Overrides
from determined.pytorch._plan import FitPlan
from determined.pytorch._trial import PyTorchTrial
from determined.pytorch.replay._lockstep import meet
from determined.pytorch.replay._stages import StageTrace

P = ParamSpec("P")
R = TypeVar("R")


class Replaying(Overrides):
    """Trains the batches of a span again, from a checkpoint, as they were trained once."""

    def __init__(self, span: ReplaySpan) -> None:
        self._span = span

    def init(self, options: dict[str, Any]) -> dict[str, Any]:
        run_id = options.get("run_id") if self._span.run_id is None else self._span.run_id
        return {
            **options,
            "run_id": run_id,
            "checkpoint_storage": self._span.storage,
            "enable_tensorboard_logging": False,
        }

    def fit(self, plan: FitPlan) -> FitPlan:
        return dataclasses.replace(
            plan,
            latest_checkpoint=self._span.checkpoint,
            fork=dataclasses.replace(plan.fork or Fork(None), ends_at=self._span.last),
            interval=None,
            progress=False,
            export=None,
            profile=ProfileOptions(),
        )

    def observer(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> Observer:
        added = build_callbacks(self._span, context)
        if self._span.socket is not None:
            return StageTrace(trial, context, meet(self._span, context.distributed.rank))
        return _Looking(self._span, context, added)

    def after_fit(self, latest_checkpoint: str | None) -> None:
        """End here: what the script does after training is no part of the span."""
        raise SystemExit(0)


class _Looking(Observer):
    """Adds callbacks to those of the trial, and may stop before the first batch of the span."""

    def __init__(
        self,
        span: ReplaySpan,
        context: PyTorchTrialContext,
        added: dict[str, PyTorchCallback],
    ) -> None:
        self._span = span
        self._context = context
        self._added = added

    def watch(self, part: Part, call: Callable[P, R]) -> Callable[P, R]:
        if part != "train_batch" or not self._span.pdb:
            return call

        def stopping(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._context._current_batch_idx == self._span.first - 1:
                pdb.Pdb().set_trace(sys._getframe())  # `s` steps into train_batch
            return call(*args, **kwargs)

        return stopping

    def callbacks(self, given: dict[str, PyTorchCallback]) -> dict[str, PyTorchCallback]:
        return {**given, **self._added}


def build_callbacks(span: ReplaySpan, context: PyTorchTrialContext) -> dict[str, PyTorchCallback]:
    """Import and create the callbacks that see a replay."""
    sys.path += [path for path in span.paths if path not in sys.path]
    return {f"{WITH}{name}": _build(name, context) for name in span.callbacks}


def _build(name: str, context: PyTorchTrialContext) -> PyTorchCallback:
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"--with {name}: expected MODULE:CLASS of a callback that can be imported: {error}."
        ) from error
    callback = kind(context) if _wants_context(kind) else kind()
    if not isinstance(callback, PyTorchCallback):
        raise TypeError(f"--with {name}: expected a PyTorchCallback, got {callback!r}.")
    return callback


def _wants_context(kind: Any) -> bool:
    parameters: Sequence[inspect.Parameter] = list(inspect.signature(kind).parameters.values())
    return any(
        p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        for p in parameters
    )
