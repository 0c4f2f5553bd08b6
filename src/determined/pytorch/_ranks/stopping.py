"""When to look for requests to stop, so that all ranks see them after the same batch."""

from __future__ import annotations

from determined.pytorch._context.context import PyTorchTrialContext

# Alone, a trial's own stop request is seen on boundaries, and after so many batches at the latest.
_MAX_BATCHES = 100
# The first forward passes of a DDP that the trial made itself arrange its buckets, together with
# the other ranks: one that has stopped before could leave another in there.
_WINDOWS_TO_SETTLE = 2


class StopRequests:
    """Looks for preemption and for the trial's own stop requests."""

    def __init__(
        self, context: PyTorchTrialContext, batches_trained: int, ends_at: int | None = None
    ) -> None:
        self._context = context
        self._preempt = context._core.preempt
        self._agreement = context.distributed._stop_agreement
        self._ends_at = ends_at
        self.is_preempted = False
        self.is_stop_requested = False
        self._check_again_at = batches_trained + _MAX_BATCHES
        if self._agreement is not None:
            settling = _WINDOWS_TO_SETTLE * context._aggregation_frequency
            self._agreement.begin(batches_trained, batches_trained + settling)

    def seen_after(self, batches_trained: int) -> bool:
        """Say whether to end the segment here; all ranks do so after the same batch.

        Called after every batch, so nearly always cheap, and never a collective.
        """
        is_preempted = self._preempt.preempt_requested_locally()
        if batches_trained == self._ends_at:
            return True
        agreement = self._agreement
        if agreement is None:
            return is_preempted or (
                batches_trained >= self._check_again_at and self._looked_alone(batches_trained)
            )
        agreement.position = batches_trained
        if is_preempted or self._context.get_stop_requested():
            agreement.propose()
        return agreement.is_proposed and agreement.is_reached(batches_trained)

    def is_end(self, batches_trained: int) -> bool:
        """Say whether a fork's part, or an interval of a search, ends here."""
        return batches_trained == self._ends_at

    def check(self, batches_trained: int) -> None:
        """Agree with the other ranks on whether anyone wants to stop. Every rank must call it."""
        mine = (self._preempt.preempt_requested_locally(), self._context.get_stop_requested())
        answers = self._context.distributed.allgather(mine)
        if any(preempted for preempted, _ in answers):
            self.is_preempted = self._preempt.should_preempt()
        self.is_stop_requested = any(stop for _, stop in answers)
        self._check_again_at = batches_trained + _MAX_BATCHES
        if self._agreement is not None:
            self._agreement.renew()

    def _looked_alone(self, batches_trained: int) -> bool:
        self.check(batches_trained)
        return self.is_preempted or self.is_stop_requested
