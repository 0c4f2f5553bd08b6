"""Requests to stop, seen by all ranks after the same step."""

from __future__ import annotations

from determined.core import Context, PreemptMode

# The first forward passes of DDP arrange its buckets together with the other ranks.
_STEPS_TO_SETTLE = 2


class StopRequests:
    """Looks for requests to stop after each step; nearly always cheap, and never a collective.

    Every rank calls `begin` and `after` at the same steps.
    """

    def __init__(self, core_context: Context) -> None:
        self._preempt = core_context.preempt
        self._agreement = core_context.distributed._stop_agreement
        self.is_stopping = False

    def begin(self, step: int) -> None:
        """Training begins after `step` steps; from now on signals count."""
        self._preempt._signals.arm()
        self.is_stopping = False
        if self._agreement is not None:
            self._agreement.begin(step, step + _STEPS_TO_SETTLE)

    def after(self, step: int) -> bool:
        """Whether to stop after this step."""
        if not self.is_stopping and self._is_asked(step):
            self.is_stopping = True
            if self._preempt._mode is PreemptMode.WorkersAskChief:
                self._preempt.should_preempt()  # so that all know the signal behind it, if any
            else:
                self._preempt._stop_here()
        return self.is_stopping

    def _is_asked(self, step: int) -> bool:
        is_asked = self._preempt.preempt_requested_locally()
        agreement = self._agreement
        if agreement is None:
            return is_asked
        agreement.position = step
        if is_asked:
            agreement.propose()
        return agreement.is_proposed and agreement.is_reached(step)
