"""When to look for requests to stop, so that all ranks see them after the same batch."""

from __future__ import annotations

import time

from determined.pytorch._context.context import PyTorchTrialContext

# A trial's own stop request is seen on boundaries, and after so many batches at the latest.
_MAX_BATCHES = 100
# With several ranks asking costs a message, so they ask about this often.
_SECONDS = 1.0


class StopWatch:
    """Looks for preemption and for the trial's own stop requests."""

    def __init__(self, context: PyTorchTrialContext, batches_trained: int) -> None:
        self._context = context
        self._preempt = context._core.preempt
        self._alone = context.distributed.size == 1
        self.is_preempted = False
        self.is_stop_requested = False
        self._looked_at = batches_trained
        self._looked_when = time.monotonic()
        self._look_again = batches_trained + (_MAX_BATCHES if self._alone else 1)

    def seen_after(self, batches_trained: int) -> bool:
        """Say whether to end the segment here. Called after every batch, so nearly always cheap."""
        if self._alone and self._preempt.preempt_requested_locally():
            return True
        if batches_trained < self._look_again:
            return False
        self.look(batches_trained)
        return self.is_preempted or self.is_stop_requested

    def look(self, batches_trained: int) -> None:
        """Agree with the other ranks on whether anyone wants to stop. Every rank must call it."""
        now = time.monotonic()
        mine = (
            self._preempt.preempt_requested_locally(),
            self._context.get_stop_requested(),
            now - self._looked_when,
        )
        answers = self._context.distributed.allgather(mine)
        if any(preempted for preempted, _, _ in answers):
            self.is_preempted = self._preempt.should_preempt()
        self.is_stop_requested = any(stop for _, stop, _ in answers)
        interval = _MAX_BATCHES
        if not self._alone:
            rate = (batches_trained - self._looked_at) / max(seconds for _, _, seconds in answers)
            interval = min(max(int(rate * _SECONDS), 1), _MAX_BATCHES)
        self._looked_at, self._looked_when = batches_trained, now
        self._look_again = batches_trained + interval
