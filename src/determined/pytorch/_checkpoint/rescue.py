"""After an error in user code: save what was trained, and say whether it is exact."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import torch

from determined.errors import DistributedError
from determined.pytorch._callback import PyTorchCallback
from determined.pytorch._checkpoint.moment import Moment, Stage
from determined.pytorch._checkpoint.saver import Saver
from determined.pytorch._context.wrapping import parameters_of
from determined.pytorch._data.seed import set_rng_state
from determined.pytorch._run import Fit, Run
from determined.pytorch._schedule import counted
from determined.util import is_overridden

logger = logging.getLogger("determined.pytorch")

_WORDS = {
    "cpu_rng_state": "torch",
    "np_rng_state": "numpy",
    "random_rng_state": "Python's random",
    "gpu_rng_state": "the accelerator",
}


class Rescue:
    """Saves a checkpoint when an exception leaves its `with` block; the exception propagates.

    With several ranks nothing is saved: the others may be dead, or busy in a collective.
    """

    def __init__(
        self,
        fit: Fit,
        run: Run,
        saver: Saver,
        save_without: Callable[[set[str]], str | None],
    ) -> None:
        """Take the parts of the run; `save_without` saves, leaving out callbacks by name."""
        self._enabled = not fit.plan.test_mode
        self.moment = Moment(fit.context)
        self.safe_at = run.state.batches_trained  # in the newest checkpoint, if there is one
        self._context = fit.context
        self._callbacks = fit.callbacks
        self._run = run
        self._state = run.state
        self._record = run.record
        self._saver = saver
        self._save_without = save_without

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._enabled or not isinstance(error, Exception):  # a second Ctrl-C stops at once
            return
        try:
            self._save(error)
        except BaseException as worse:  # the first error is the one to see
            logger.error(
                f"The training state could not be saved after the error: {type(worse).__name__}: "
                f"{worse}"
            )

    def _save(self, error: Exception) -> None:
        batches = self._state.batches_trained
        if self._context.distributed.size > 1:  # a collective could wait forever
            if not isinstance(error, DistributedError) and self.safe_at != batches:
                logger.warning(
                    f"Not saved: {counted(batches - self.safe_at, 'batch')} since the last "
                    "checkpoint. With several ranks, the others may be at a different batch. Set "
                    "fit(checkpoint_period=...) to lose less."
                )
            return
        with contextlib.suppress(Exception):  # it is told of when the saver is closed
            self._saver.wait()
        if self.safe_at == batches or error is self._saver.failure:
            return
        if not self._is_finite():
            logger.warning("Not saved after the error: weights are not finite.")
            return
        culprits = _callbacks_in(error, self._callbacks)
        reason = self._go_back()
        if reason is None and "state_dict" in _functions_in(error) and culprits:
            reason = f"the state of the callback {culprits[0]!r} is missing"
        self._record.not_exact = reason
        if not self._run.is_validated and self._run.is_validation_due:
            self._record.validation_pending = True
        where = self._save_without(set(culprits))
        exactness = "exact" if reason is None else f"not exact: {reason}"
        logger.warning(
            f"An error ended training. The state after {counted(batches, 'batch')} is saved "
            f"({exactness}): {where} Fix the cause, then resume with "
            'fit(latest_checkpoint="latest").'
        )

    def _is_finite(self) -> bool:
        weights = (p for model in self._context.models for p in model.parameters())
        return all(bool(torch.isfinite(weight).all()) for weight in weights)

    def _go_back(self) -> str | None:
        """Return to the end of the last finished batch; return what prevents it, if anything."""
        moment = self.moment
        random_states, lost = moment.random_states()
        set_rng_state(random_states)
        reasons = []
        if moment.stage is Stage.TRAINING:
            reasons = [self._why_weights_differ(), self._why_gradients_differ()]
            if moment.have_buffers_moved():
                reasons.append("buffers, such as running statistics, may include the failed batch")
        if moment.stage is Stage.VALIDATING:
            self._record.validation_pending = True
            if moment.have_weights_moved() and not self._is_swapped_back():
                reasons.append("weights changed during the validation")
        if lost:
            drawn = " and ".join(_WORDS.get(name, name) for name in lost)
            reasons.append(f"the failed batch may have drawn random numbers of {drawn}")
        return "; ".join(reason for reason in reasons if reason) or None

    def _why_weights_differ(self) -> str | None:
        context = self._context
        if context._num_updates != context._batch_began_at[0]:
            return "the failed batch had already updated the weights"
        others = [o for o in context.optimizers if id(o) not in context._stepped]
        if any(self.moment.has_moved(parameters_of(optimizer)) for optimizer in others):
            return "the failed batch may have updated the weights with an optimizer step of its own"
        if self.moment.have_schedulers_moved():
            return "the failed batch may have stepped a scheduler"
        return None

    def _why_gradients_differ(self) -> str | None:
        """Drop the gradients of the failed batch, or return why that is impossible."""
        context = self._context
        parameters = [p for optimizer in context.optimizers for p in parameters_of(optimizer)]
        if all(p.grad is None for p in parameters):
            return None
        _, backwards_before = context._batch_began_at
        if context._num_backwards == backwards_before:
            if context._num_backwards:
                return None  # they are of earlier batches
            return "the gradients may include those of the failed batch"
        in_window = self._state.batches_trained % context._aggregation_frequency != 0
        cleared = [context._cleared_at.get(id(o), 0) for o in context.optimizers]
        if in_window or any(at < backwards_before for at in cleared):
            return "the gradients of earlier batches include those of the failed batch"
        for parameter in parameters:
            parameter.grad = None
        return None

    def _is_swapped_back(self) -> bool:
        """Say whether a callback that changes weights in a validation undoes it before a save."""
        hooks = ("on_validation_start", "on_checkpoint_save_start")
        return any(
            all(is_overridden(getattr(callback, hook), PyTorchCallback) for hook in hooks)
            for callback in self._callbacks.values()
        )


def _callbacks_in(error: BaseException, callbacks: Mapping[str, PyTorchCallback]) -> list[str]:
    """Return the names of callbacks whose methods the error, or what led to it, came through."""
    objects = {id(value) for frame in _frames(error) for value in _arguments(frame)}
    return [name for name, callback in callbacks.items() if id(callback) in objects]


def _functions_in(error: BaseException) -> set[str]:
    return {frame.f_code.co_name for frame in _frames(error)}


def _arguments(frame: Any) -> list[Any]:
    names = frame.f_code.co_varnames[:1]  # `self`, whatever its name
    return [frame.f_locals[name] for name in names if name in frame.f_locals]


def _frames(error: BaseException | None) -> list[Any]:
    frames = []
    while error is not None:
        traceback = error.__traceback__
        while traceback is not None:
            frames.append(traceback.tb_frame)
            traceback = traceback.tb_next
        error = error.__cause__ or error.__context__
    return frames
