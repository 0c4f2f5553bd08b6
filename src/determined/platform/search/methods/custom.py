"""A user's search method, as the searcher sees it: events out, orders back."""

from __future__ import annotations

from typing import Any, Protocol

from determined.platform.search import trials as t
from determined.platform.search.search_state import Desk
from determined.platform.search.trials import Trial


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
        self, desk: Desk, message: dict[str, Any], recorded: list[dict[str, Any]] | None
    ) -> tuple[list[dict[str, Any]], str]:
        """Carry out new or recorded orders; return them, and how the method failed if it did."""
        orders = self._ask(message) if recorded is None else recorded
        is_failure = any(order.get("order") == "fail" for order in orders)
        if recorded is not None and self._oracle is not None and not is_failure:
            self._oracle.repeat(message, recorded)
        try:
            self._carry_out(desk, orders)
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

    def _carry_out(self, desk: Desk, orders: list[dict[str, Any]]) -> None:
        for order in orders:
            kind = order.get("order")
            if kind == "fail":
                raise CustomMethodError(order["reason"])
            if kind == "create":
                hparams = order.get("hparams")
                if not isinstance(hparams, dict):
                    raise CustomMethodError(f"create: expected a dict of values, got {hparams!r}.")
                desk.create(hparams=hparams, reason=str(order.get("reason") or "by the method"))
            elif kind == "stop":
                trial = self._trial(desk, order)
                if trial.status in (t.RUNNING, t.PAUSING, t.PAUSED):
                    desk.stop(trial, str(order.get("reason") or "stopped by the method"))
            elif kind == "pause":
                trial = self._trial(desk, order)
                if trial.status == t.RUNNING:
                    desk.pause(trial, str(order.get("reason") or "paused by the method"))
            elif kind == "resume":
                trial = self._trial(desk, order)
                if trial.status == t.PAUSED or trial.exited:
                    desk.resume(trial, str(order.get("reason") or "resumed by the method"))
            elif kind == "progress":
                self._progress = min(max(float(order["progress"]), 0.0), 1.0)
            else:
                raise CustomMethodError(f"expected create, stop, pause or resume, got {order!r}.")

    @staticmethod
    def _trial(desk: Desk, order: dict[str, Any]) -> Trial:
        number = order.get("trial")
        if not isinstance(number, int) or not 0 <= number < len(desk.trials):
            raise CustomMethodError(
                f"there is no trial {number!r}; {len(desk.trials)} were created."
            )
        return desk.trials[number]

    def initial(self, desk: Desk) -> None:
        """The method's orders follow every event."""

    def validated(self, desk: Desk, trial: Trial, value: float, time: int) -> None:
        """The method's orders follow every event."""

    def paused(self, desk: Desk, trial: Trial) -> None:
        trial.status = t.PAUSED

    def exited_early(self, desk: Desk, trial: Trial, status: str) -> None:
        desk.end(trial, status)

    def exited(self, desk: Desk, trial: Trial) -> None:
        if trial.status in (t.RUNNING, t.PAUSING, t.PAUSED):
            desk.end(trial, t.DONE)

    def raised(self, desk: Desk, limits: object) -> None:
        """The method's orders follow every event."""

    def progress(self, desk: Desk) -> float:
        return self._progress

    def load_results(self, desk: Desk) -> None:
        """No model asks for results."""

    def to_json(self) -> dict[str, Any]:
        return {"progress": self._progress}

    def load(self, data: dict[str, Any]) -> None:
        self._progress = data["progress"]
