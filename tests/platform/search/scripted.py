"""Short ways to step a searcher in tests."""

from __future__ import annotations

from typing import Any

from determined.platform.search import events as e
from determined.platform.search.searcher import Searcher, Step

SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "n": {"type": "int", "minval": 1, "maxval": 8},
}


def halving(**changes: Any) -> dict[str, Any]:
    usual = {
        "name": "async_halving",
        "metric": "loss",
        "max_trials": 6,
        "max_concurrent_trials": 2,
        "num_rungs": 3,
        "divisor": 4,
        "max_time": 16,
        "time_metric": "epochs",
    }
    return {**usual, **changes}


class Script:
    """A search whose trials are called T1, T2, ... in the order in which they were created."""

    def __init__(
        self,
        searcher: dict[str, Any],
        space: dict[str, Any] | None = None,
        seed: int = 42,
        oracle: Any = None,
    ) -> None:
        self.searcher = Searcher(searcher, SPACE if space is None else space, seed, oracle)
        self.steps: list[Step] = []
        self.created: list[e.Create] = []
        self.reasons: list[str] = []

    def handle(self, event: e.Event) -> list[str]:
        """Give an event; return the actions as words such as `stop T1`."""
        step = self.searcher.handle(event)
        self.steps.append(step)
        self.created += [action for action in step.actions if isinstance(action, e.Create)]
        self.reasons = [action.reason for action in step.actions]  # type: ignore[attr-defined]
        return [self._word(action) for action in step.actions]

    def _word(self, action: e.Action) -> str:
        if isinstance(action, e.Shutdown):
            return "failure" if action.failure else "cancel" if action.cancel else "shutdown"
        if isinstance(action, e.PauseExperiment):
            return "pause experiment"
        return f"{action.kind} {self.name(action.request_id)}"  # type: ignore[attr-defined]

    def name(self, request_id: str) -> str:
        return f"T{[c.request_id for c in self.created].index(request_id) + 1}"

    def rid(self, trial: int) -> str:
        return self.created[trial - 1].request_id

    def start(self) -> list[str]:
        return self.handle(e.InitialTrials())

    def validate(self, trial: int, epoch: int, loss: float) -> list[str]:
        metrics = {"loss": loss, "epochs": epoch}
        return self.handle(e.ValidationCompleted(self.rid(trial), metrics, epoch * 100))

    def exit(self, trial: int) -> list[str]:
        return self.handle(e.TrialExited(self.rid(trial)))

    def paused(self, trial: int) -> list[str]:
        return self.handle(e.TrialPaused(self.rid(trial)))

    def early(self, trial: int, reason: str = e.ERRORED, digest: str | None = None) -> list[str]:
        """Let a trial fail; both events, as the platform sends them."""
        event = e.TrialExitedEarly(self.rid(trial), reason, digest, progressed=digest is None)
        return self.handle(event) + self.exit(trial)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [step.record for step in self.steps]
