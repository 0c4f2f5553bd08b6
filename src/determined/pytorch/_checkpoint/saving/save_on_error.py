"""After an error: save what was trained, and say whether it is exact.

The rule has no exceptions: a state is exact if no user code was running when the error came, or if
it was copied before that code began, as it is before a validation.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from types import TracebackType

import torch

from determined.errors import CheckpointNotFound, DistributedError
from determined.pytorch._checkpoint.saving.saver import Saver
from determined.pytorch._run import Fit, Run
from determined.pytorch._schedule import counted

logger = logging.getLogger("determined.pytorch")


class SaveOnError:
    """Saves a checkpoint when an exception leaves its `with` block; the exception propagates.

    With several ranks nothing is saved: the others may be dead, or busy in a collective.
    """

    def __init__(self, fit: Fit, run: Run, saver: Saver, save: Callable[[], str | None]) -> None:
        """Take the parts of the run; `save` saves a checkpoint and returns its id."""
        self._enabled = not fit.plan.test_mode
        self.saved_at = run.state.batches_trained  # in the newest checkpoint, if there is one
        self._context = fit.context
        self._run = run
        self._saver = saver
        self._save_state = save
        self._running: str | None = None

    @contextlib.contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Note that user code runs in this block; an error that leaves it makes a state inexact."""
        self._running = what
        yield
        self._running = None

    def __enter__(self) -> Callable[[str], contextlib.AbstractContextManager[None]]:
        return self.during

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
        batches = self._run.state.batches_trained
        if self._context.distributed.size > 1:  # a collective could wait forever
            if not isinstance(error, DistributedError) and self.saved_at != batches:
                is_chief = self._context.distributed.rank == 0  # who alone knows what is saved
                lost = counted(batches - self.saved_at, "batch") if is_chief else "what was trained"
                logger.warning(
                    f"Not saved: {lost} since the last checkpoint. With several ranks, the others "
                    "may be at a different batch. Set fit(checkpoint_period=...) to lose less."
                )
            return
        with contextlib.suppress(Exception):  # it is told of when the saver is closed
            self._saver.wait()
        if self.saved_at == batches or error is self._saver.failure:
            return
        if not self._is_finite():
            logger.warning("Not saved after the error: weights are not finite.")
            return
        exact, record = self._newest_exact(), self._run.record
        if self._running is not None:
            record.not_exact = f"the error came during {self._running}"
        self._tell(batches, self._save_state(), exact)

    def _is_finite(self) -> bool:
        weights = (p for model in self._context.models for p in model.parameters())
        return all(bool(torch.isfinite(weight).all()) for weight in weights)

    def _newest_exact(self) -> tuple[str, int] | None:
        """Return the checkpoint that `latest` finds, and its batches."""
        checkpoint = self._context._core.checkpoint
        try:
            storage_id = checkpoint.resolve("latest", self._run.record.run_id)
            return storage_id, checkpoint.get_metadata(storage_id).get("steps_completed") or 0
        except CheckpointNotFound:
            return None

    def _tell(self, batches: int, saved: str | None, exact: tuple[str, int] | None) -> None:
        what = f"An error ended training. The state after {counted(batches, 'batch')} is saved"
        reason = self._run.record.not_exact
        if reason is None:
            logger.warning(
                f"{what} (exact): {saved}. Fix the cause, then resume with "
                'fit(latest_checkpoint="latest").'
            )
            return
        start, again = "starts from the beginning", batches
        if exact is not None:
            start, again = f"continues from {exact[0]}", batches - exact[1]
        logger.warning(
            f"{what} (not exact: {reason}): {saved}. Fix the cause, then resume: "
            f'fit(latest_checkpoint="latest") {start} and trains {counted(again, "batch")} again; '
            f'fit(latest_checkpoint="{saved}") takes the state that is not exact.'
        )
