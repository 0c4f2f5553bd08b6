"""A user's search method, as the searcher sees it: events out, orders back."""

from __future__ import annotations

from typing import Any, Protocol

from determined.platform.search.search_state import (
    DONE,
    PAUSED,
    PAUSING,
    RUNNING,
    SearchState,
    Trial,
)


class CustomMethodError(Exception):
    """The user's method raised, or answered with something other than orders; see the text."""


class Oracle(Protocol):
    """Where the user's method runs; asked once per event, or given past events to restore it."""

    def ask(self, message: dict[str, Any]) -> list[dict[str, Any]]: ...
    def repeat(self, message: dict[str, Any], orders: list[dict[str, Any]]) -> None: ...


class Custom:
    """Carries out the orders of the user's method; trials are identified by number."""

    def __init__(self, oracle: Oracle | None) -> None:
        self._oracle = oracle
        self._progress = 0.0

    def consult(
        self, search: SearchState, message: dict[str, Any], recorded: list[dict[str, Any]] | None
    ) -> tuple[list[dict[str, Any]], str]:
        """Carry out new or recorded orders; return them, and how the method failed if it did."""
        orders = self._ask(message) if recorded is None else recorded
        is_failure = any(order.get("order") == "fail" for order in orders)
        if recorded is not None and self._oracle is not None and not is_failure:
            self._oracle.repeat(message, recorded)
        try:
            self._carry_out(search, orders)
        except CustomMethodError as error:
            return orders, str(error)
        return orders, ""

    def _ask(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        if self._oracle is None:
            raise ValueError("A custom search needs an `oracle`, where its method runs.")
        try:
            return self._oracle.ask(message)
        except CustomMethodError as error:
            return [{"order": "fail", "reason": str(error)}]

    def _carry_out(self, search: SearchState, orders: list[dict[str, Any]]) -> None:
        for order in orders:
            kind = order.get("order")
            if kind == "fail":
                raise CustomMethodError(order["reason"])
            if kind == "create":
                hparams = order.get("hparams")
                if not isinstance(hparams, dict):
                    raise CustomMethodError(f"create: expected a dict of values, got {hparams!r}.")
                search.create(hparams=hparams, reason=str(order.get("reason") or "by the method"))
            elif kind == "stop":
                trial = self._trial(search, order)
                if trial.status in (RUNNING, PAUSING, PAUSED):
                    search.stop(trial, str(order.get("reason") or "stopped by the method"))
            elif kind == "pause":
                trial = self._trial(search, order)
                if trial.status == RUNNING:
                    search.pause(trial, str(order.get("reason") or "paused by the method"))
            elif kind == "resume":
                trial = self._trial(search, order)
                if trial.status == PAUSED or trial.exited:
                    search.resume(trial, str(order.get("reason") or "resumed by the method"))
            elif kind == "progress":
                self._progress = min(max(float(order["progress"]), 0.0), 1.0)
            else:
                raise CustomMethodError(f"expected create, stop, pause or resume, got {order!r}.")

    @staticmethod
    def _trial(search: SearchState, order: dict[str, Any]) -> Trial:
        number = order.get("trial")
        if not isinstance(number, int) or not 0 <= number < len(search.trials):
            raise CustomMethodError(
                f"there is no trial {number!r}; {len(search.trials)} were created."
            )
        return search.trials[number]

    def initial(self, search: SearchState) -> None:
        """The method's orders follow every event."""

    def validated(self, search: SearchState, trial: Trial, value: float, time: int) -> None:
        """The method's orders follow every event."""

    def paused(self, search: SearchState, trial: Trial) -> None:
        trial.status = PAUSED

    def exited_early(self, search: SearchState, trial: Trial, status: str) -> None:
        search.end(trial, status)

    def exited(self, search: SearchState, trial: Trial) -> None:
        if trial.status in (RUNNING, PAUSING, PAUSED):
            search.end(trial, DONE)

    def raised(self, search: SearchState, limits: object) -> None:
        """The method's orders follow every event."""

    def progress(self, search: SearchState) -> float:
        return self._progress

    def load_results(self, search: SearchState) -> None:
        """No model asks for results."""

    def to_json(self) -> dict[str, Any]:
        return {"progress": self._progress}

    def load(self, data: dict[str, Any]) -> None:
        self._progress = data["progress"]
