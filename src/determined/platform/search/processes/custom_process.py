"""Run a user's search method in a separate process, so that a crash stays contained.

To restore it, a new process receives all recorded events again; its answers must match the
recorded ones.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from determined.platform.search.canonical_json import dump
from determined.platform.search.methods.custom import CustomMethodError
from determined.platform.search.processes.child import Child, ChildLostError


class MethodLostError(CustomMethodError):
    """Something else ended the process of a method: a new one can be asked."""


class CustomProcess:
    """A child process with a user's method; an `Oracle`.

    Args:
        searcher: the `searcher` section, with `class: module:Class`.
        hyperparameters: the `hyperparameters` section.
        seed: the experiment's seed.
        directory: the folder that has the module: the experiment's code.
        timeout_seconds: how long the method may take for one event.
        python: the interpreter of the experiment.
        log: where its output goes; None discards it.
        variables: its environment; None for the environment of this process.
    """

    def __init__(
        self,
        searcher: dict[str, Any],
        hyperparameters: dict[str, Any],
        seed: int,
        directory: Path,
        timeout_seconds: float = 60.0,
        python: str = sys.executable,
        log: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._child = Child(
            [python, "-m", "determined.platform.search.processes.custom_child"],
            directory,
            timeout_seconds,
            log,
            variables,
        )
        opening = {
            "directory": str(directory),
            "config": searcher,
            "hyperparameters": hyperparameters,
            "seed": seed,
        }
        self._exchange(dump(opening))

    @property
    def pid(self) -> int:
        return self._child.pid

    def ask(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Pass an event to the method and return its orders.

        Raises:
            CustomMethodError: with the traceback of the method, or with how its process ended.
        """
        answer = self._exchange(dump(message))
        if "error" in answer:
            raise CustomMethodError(answer["error"])
        return list(answer["orders"])

    def repeat(self, message: dict[str, Any], orders: list[dict[str, Any]]) -> None:
        """Pass an event to a new process and compare its orders with the recorded ones.

        Raises:
            CustomMethodError: if the method answers differently this time.
        """
        answer = self.ask(message)
        if dump(answer) != dump(orders):
            raise CustomMethodError(
                f"the method cannot be restored: it answered {message['kind']} with {answer!r}, "
                f"but had answered {orders!r} before. A method must draw random numbers only from "
                "`search.random` and must not depend on the time."
            )

    def close(self) -> None:
        """End the process; calling again does nothing."""
        self._child.close()

    def abort(self) -> None:
        """End the process while another thread waits for its answer."""
        self._child.abort()

    def _exchange(self, line: str) -> dict[str, Any]:
        try:
            self._child.send(line)
            answer: dict[str, Any] = json.loads(self._child.receive())
        except ChildLostError as lost:
            kind = MethodLostError if lost.by_signal else CustomMethodError
            raise kind(f"the process of the method {lost}") from None
        return answer


class LazyOracle:
    """An `Oracle` that starts the process of a method when the first event comes.

    It replays recorded events and earlier events to a new process. A process that something
    else ended, such as a lack of memory, is restarted once per event.
    """

    def __init__(self, start: Callable[[], CustomProcess]) -> None:
        self._start = start
        self._process: CustomProcess | None = None
        self._history: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        self._is_aborted = False

    def repeat(self, message: dict[str, Any], orders: list[dict[str, Any]]) -> None:
        """Remember a recorded event and its orders."""
        self._history.append((message, orders))

    def ask(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the method's orders. Raises CustomMethodError."""
        try:
            orders = self._restored().ask(message)
        except MethodLostError:
            self.close()
            if self._is_aborted:
                raise
            orders = self._restored().ask(message)
        self._history.append((message, orders))
        return orders

    def close(self) -> None:
        """End the process, if there is one; the next event starts another."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def abort(self) -> None:
        """Make what another thread is asking fail, and all later events."""
        self._is_aborted = True
        if self._process is not None:
            self._process.abort()

    def _restored(self) -> CustomProcess:
        if self._process is None:
            try:
                self._process = self._start()
            except OSError as error:
                raise CustomMethodError(f"its process could not be started: {error}") from None
            if self._is_aborted:
                self.close()
                raise CustomMethodError("the search was closed.")
            self._repeat(self._process)
        return self._process

    def _repeat(self, process: CustomProcess) -> None:
        try:
            for message, orders in self._history:
                process.repeat(message, orders)
        except CustomMethodError:
            self.close()
            raise
