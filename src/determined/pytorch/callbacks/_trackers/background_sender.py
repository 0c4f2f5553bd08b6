"""Hands things over to something slow or unreliable, from a thread, without ever waiting for it."""

from __future__ import annotations

import collections
import logging
import threading
from typing import Generic, Protocol, TypeVar

logger = logging.getLogger("determined.pytorch")

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_MAX_FAILURES_IN_A_ROW = 3


class Receiver(Protocol[T_contra]):
    """Where things go. All methods run in the sender's thread."""

    def open(self) -> None:
        """Get ready."""

    def record(self, report: T_contra, /) -> None:
        """Take one thing."""

    def close(self, failed: bool) -> None:
        """Finish."""


class BackgroundSender(Generic[T]):
    """A bounded queue and the thread that empties it.

    `put` never waits: what does not fit is dropped. A receiver that cannot be opened, or fails
    three times in a row, is cut off; one that hangs is cut off by `finish`. What was lost is
    counted and logged by `finish`.
    """

    def __init__(self, name: str, receiver: Receiver[T], limit: int) -> None:
        self._name = name
        self._receiver = receiver
        self._limit = limit
        self._changed = threading.Condition()
        self._waiting: collections.deque[T] = collections.deque()
        self._num_put = self._num_delivered = 0
        self._is_ending = self._is_cut_off = self._failed = self._has_warned = False
        self._last_error = ""
        self._thread = threading.Thread(target=self._run, name=f"det-{name}", daemon=True)
        self._thread.start()

    @property
    def num_lost(self) -> int:
        """How many things were put and not delivered, so far."""
        return self._num_put - self._num_delivered

    def put(self, thing: T) -> None:
        """Have a thing delivered, if there is room for it."""
        with self._changed:
            self._num_put += 1
            is_full = len(self._waiting) >= self._limit
            if not is_full and not self._is_cut_off:
                self._waiting.append(thing)
                self._changed.notify()
        if is_full and not self._has_warned:
            self._has_warned = True
            logger.warning(f"{self._name} cannot keep up: reports are dropped.")

    def finish(self, failed: bool, timeout_seconds: float) -> None:
        """Deliver what is left and close the receiver, unless that takes too long."""
        with self._changed:
            self._is_ending, self._failed = True, failed
            self._changed.notify()
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            self._cut_off(f"it did not finish within {timeout_seconds:g} seconds")
        if self.num_lost:
            logger.warning(
                f"{self._name} lost {self.num_lost} of {self._num_put} reports.{self._last_error}"
            )

    def _run(self) -> None:
        try:
            self._receiver.open()
        except BaseException as e:  # in its own thread, nothing else would catch it
            self._cut_off(f"it could not be opened: {_text(e)}")
            return
        failures = 0
        while (thing := self._next()) is not None:
            try:
                self._receiver.record(thing)
                self._num_delivered += 1
                failures = 0
            except BaseException as e:
                failures += 1
                self._last_error = f" The last error was {_text(e)}"
                if failures == _MAX_FAILURES_IN_A_ROW:
                    self._cut_off(f"it failed {failures} times in a row: {_text(e)}")
        try:
            self._receiver.close(self._failed)
        except BaseException as e:
            logger.warning(f"{self._name} could not be closed: {_text(e)}")

    def _next(self) -> T | None:
        """Wait for something to deliver; None is the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_ending or self._is_cut_off)
            return self._waiting.popleft() if self._waiting and not self._is_cut_off else None

    def _cut_off(self, reason: str) -> None:
        with self._changed:
            self._is_cut_off = True
            self._waiting.clear()
        logger.warning(f"{self._name} is disconnected; training continues without it: {reason}.")


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:500]}"
