"""PreemptContext: whether training should save a checkpoint and stop now."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from types import TracebackType

from determined.core._distributed import DistributedContext, DummyDistributedContext
from determined.core._enums import PreemptMode
from determined.core._stop_signals import StopSignals
from determined.core.backends.backend import Backend, LocalBackend

logger = logging.getLogger("determined.core")


class PreemptContext:
    """Tells training that it should stop: the platform asks, or a signal arrived.

    Signals count from the first `should_preempt()` in the main thread until `close()`, or within
    `catch_signals()`. A stop request cannot be withdrawn.
    """

    def __init__(
        self,
        backend: Backend,
        distributed: DistributedContext,
        preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    ) -> None:
        self._backend = backend
        self._distributed = distributed
        self._mode = PreemptMode(preempt_mode)
        self._signals = StopSignals(is_chief=distributed.rank == 0)
        self._is_started = False
        self._is_preempted = False
        self._is_acknowledged = False
        self._agreed_signal: int | None = None

    def start(self) -> PreemptContext:
        """Begin; raises RuntimeError the second time."""
        if self._is_started:
            raise RuntimeError("PreemptContext.start() was called twice.")
        self._is_started = True
        return self

    def close(self) -> None:
        """Restore the previous signal handlers."""
        self._signals.disarm()

    def __enter__(self) -> PreemptContext:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.close()

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Whether to save and exit now.

        With `WorkersAskChief` every rank must call this in step; all get the same answer, which is
        yes as soon as one of them was asked to stop.

        Args:
            auto_ack: acknowledge a yes at once. Leaving with status 0 then means "interrupted",
                without acknowledgement it means "finished".
        """
        if not self._is_started:
            raise RuntimeError(
                "cannot call should_preempt() before start(): enter the core context first, as in "
                "`with core.init() as core_context:`."
            )
        if self._mode == PreemptMode.ChiefOnly and self._distributed.rank != 0:
            raise RuntimeError(
                "should_preempt() was called from non-chief rank "
                f"{self._distributed.rank}, which PreemptMode.ChiefOnly forbids."
            )
        self._signals.arm()
        if not self._is_preempted:
            self._is_preempted = self._ask()
        if self._is_preempted and auto_ack and self._is_asking_rank:
            self.acknowledge_preemption_signal()
        return self._is_preempted

    def _stop_here(self) -> None:
        """Stop as if asked to. Every rank must call it at the same place."""
        self._is_preempted = True
        if self._is_asking_rank:
            self.acknowledge_preemption_signal()

    def acknowledge_preemption_signal(self) -> None:
        """Acknowledge the request: this process is about to save and exit."""
        if not self._is_acknowledged:
            self._is_acknowledged = True
            self._backend.acknowledge_preemption()

    def preempt_requested_locally(self) -> bool:
        """Whether this rank was asked to stop. Cheap, without communication; ranks may differ."""
        return (
            self._is_preempted
            or self._signals.received is not None
            or self._backend.should_preempt()
        )

    @property
    def is_preempted(self) -> bool:
        """Whether `should_preempt()` has returned True."""
        return self._is_preempted

    @property
    def signal_received(self) -> int | None:
        """The signal behind the stop: the one that this rank saw, else the one ranks agreed on."""
        received = self._signals.received
        return self._agreed_signal if received is None else received

    @property
    def signal_handled_at(self) -> float:
        """When the main thread last noticed a signal, in seconds of `time.monotonic()`."""
        return self._signals.handled_at

    @contextlib.contextmanager
    def catch_signals(self) -> Iterator[None]:
        """Let SIGTERM, SIGHUP and the first Ctrl-C request a stop while the `with` block runs.

        Does nothing outside the main thread, or where signals are caught already.
        """
        is_ours = self._signals.arm()
        try:
            yield
        finally:
            if is_ours:
                self._signals.disarm()

    @property
    def _is_asking_rank(self) -> bool:
        return self._mode == PreemptMode.WorkersAskMaster or self._distributed.rank == 0

    def _ask(self) -> bool:
        mine = (self.preempt_requested_locally(), self._signals.received)
        if self._mode != PreemptMode.WorkersAskChief:
            return mine[0]
        # A signal may reach one rank a moment before the others, so any rank's yes counts.
        answers = self._distributed.allgather(mine)
        self._agreed_signal = next((number for _, number in answers if number is not None), None)
        return any(requested for requested, _ in answers)


class DummyPreemptContext(PreemptContext):
    """A PreemptContext for a local run: only signals stop it."""

    def __init__(
        self,
        dist: DistributedContext | None = None,
        preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    ) -> None:
        super().__init__(LocalBackend(), dist or DummyDistributedContext(), preempt_mode)
