"""A platform that plays a search with random timing, results and failures, and watches it."""

from __future__ import annotations

import random
from typing import Any

from determined.platform.search import events as e
from determined.platform.search.searcher import Searcher, Step


class Driver:
    """Chooses at random what happens next to one of the trials, until the search is over.

    It checks what a platform relies on: no order contradicts an earlier one.
    """

    def __init__(
        self,
        searcher: Searcher,
        seed: int,
        failures: float = 0.1,
        length: int = 64,
        reasons: list[str] | None = None,
    ) -> None:
        self.searcher = searcher
        self.reasons = reasons or [e.ERRORED, e.USER_CANCELED, e.INVALID_HP, "done"]
        self.random = random.Random(seed)
        self.failures = failures
        self.length = length
        self.epochs: dict[str, int] = {}
        self.state: dict[str, str] = {}  # running, stopping, pausing, paused, failing, ended
        self.steps: list[Step] = []
        self.num_invalid = 0
        self.most_running = 0
        self.is_over = False

    def handle(self, event: e.Event) -> None:
        step = self.searcher.handle(event)
        self.steps.append(step)
        for action in step.actions:
            assert not self.is_over, f"{action} after the end"
            self._obey(action)
        running = sum(state == "running" for state in self.state.values())
        self.most_running = max(self.most_running, running)

    def _obey(self, action: e.Action) -> None:
        if isinstance(action, e.Shutdown):
            assert set(self.state.values()) <= {"ended"}
            self.is_over = True
        elif isinstance(action, e.Create):
            assert action.request_id not in self.state
            begun = self.epochs[action.parent_id] if isinstance(action, e.Fork) else 0
            self.state[action.request_id], self.epochs[action.request_id] = "running", begun
        elif isinstance(action, e.Resume):
            assert self.state[action.request_id] in ("paused", "ended")
            self.state[action.request_id] = "running"
        elif isinstance(action, e.Stop):
            assert self.state[action.request_id] in ("running", "pausing", "paused")
            self.state[action.request_id] = "stopping"
        elif isinstance(action, (e.Pause, e.FailTrial)):
            is_pause = isinstance(action, e.Pause)
            allowed = ("running",) if is_pause else ("running", "paused")
            assert self.state[action.request_id] in allowed
            self.state[action.request_id] = "pausing" if is_pause else "failing"

    def play(self, first: e.Event | None = None, most: int = 100_000) -> None:
        self.is_over = False
        self.handle(first or e.InitialTrials())
        for _ in range(most):
            if self.is_over:
                return
            ready = [r for r, state in self.state.items() if state not in ("ended", "paused")]
            assert ready, "the search waits for nobody"
            self._happen(self.random.choice(ready))
        raise AssertionError("the search does not end")

    def _happen(self, request_id: str) -> None:
        state = self.state[request_id]
        if state == "running":
            self._train(request_id)
        elif state == "pausing" and self.random.random() < 0.9:
            self.state[request_id] = "paused"
            self.handle(e.TrialPaused(request_id))
        elif state == "failing":
            self._end(request_id, e.ERRORED)
        elif self.random.random() < 0.3:
            self._report(request_id)  # one that came too late
        else:
            self._end(request_id, e.ERRORED if self.random.random() < 0.05 else None)

    def _train(self, request_id: str) -> None:
        if self.random.random() < self.failures:
            reason = self.random.choice(self.reasons)
            self._end(request_id, None if reason == "done" else reason)
            return
        self.epochs[request_id] += self.random.choice((1, 1, 2, 5, 20))
        self._report(request_id)
        if self.state[request_id] == "running" and self.epochs[request_id] >= self.length:
            self._end(request_id, None)

    def _report(self, request_id: str) -> None:
        epoch = min(self.epochs[request_id], self.length)
        metrics: dict[str, Any] = {"epochs": epoch, "loss": round(self.random.random(), 2)}
        if self.random.random() < self.failures / 10:
            metrics["loss"] = float("nan")
        self.handle(e.ValidationCompleted(request_id, metrics, epoch))

    def _end(self, request_id: str, reason: str | None) -> None:
        if reason is not None:
            self.num_invalid += reason == e.INVALID_HP
            self.state[request_id] = "failing"
            self.handle(e.TrialExitedEarly(request_id, reason))
        self.state[request_id] = "ended"
        self.handle(e.TrialExited(request_id))
