"""The process in which a user's search method runs: JSON lines in, JSON lines out.

python -m determined.platform.search.processes.custom_child      started by `custom_process`
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import traceback
from typing import Any, TextIO

from determined.platform.search.canonical_json import load
from determined.platform.search.processes.child import end_with_parent


class Search:
    """What a user's method gets: the configuration, and the orders that it can give.

    Attributes:
        config: the `searcher` section of the configuration.
        hyperparameters: the `hyperparameters` section.
        seed: the experiment's seed.
        random: a `random.Random` seeded with it. A method that takes its random numbers from here
            (and reads no clock) makes the same decisions again when it is restored.
    """

    def __init__(self, config: dict[str, Any], hyperparameters: dict[str, Any], seed: int) -> None:
        self.config = config
        self.hyperparameters = hyperparameters
        self.seed = seed
        self.random = random.Random(seed)
        self._num_trials = 0
        self._orders: list[dict[str, Any]] = []

    def create(self, hparams: dict[str, Any], reason: str = "") -> int:
        """Start a trial with these values; return its number, counted from 0."""
        self._orders.append({"order": "create", "hparams": hparams, "reason": reason})
        self._num_trials += 1
        return self._num_trials - 1

    def stop(self, trial: int, reason: str = "") -> None:
        """End a trial; it counts as completed."""
        self._orders.append({"order": "stop", "trial": trial, "reason": reason})

    def pause(self, trial: int, reason: str = "") -> None:
        """Let a trial save a checkpoint and release its slots."""
        self._orders.append({"order": "pause", "trial": trial, "reason": reason})

    def resume(self, trial: int, reason: str = "") -> None:
        """Run a paused or ended trial again from its latest checkpoint."""
        self._orders.append({"order": "resume", "trial": trial, "reason": reason})

    def report_progress(self, progress: float) -> None:
        """Say how far the search is, from 0 to 1."""
        self._orders.append({"order": "progress", "progress": progress})

    def take_orders(self) -> list[dict[str, Any]]:
        orders, self._orders = self._orders, []
        return orders


class _EventHandler:
    """Passes events to the user's method, which is notified once of the end of each trial."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self._early: dict[int, str] = {}

    def handle(self, message: dict[str, Any]) -> None:
        kind, trial = message["kind"], message.get("trial", -1)
        if kind == "initial_trials":
            self._method.start()
        elif kind == "validation_completed":
            self._method.validated(trial, message["metrics"], message["steps"])
        elif kind == "trial_exited_early":
            self._early[trial] = message["reason"]
        elif kind == "trial_exited":
            self._method.ended(trial, self._early.pop(trial, None))
        elif kind == "limits_raised" and hasattr(self._method, "raised"):
            self._method.raised({k: v for k, v in message.items() if k != "kind" and v})


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    if not name:
        raise ValueError(f"searcher.class: expected module:Class, got {path!r}.")
    return getattr(importlib.import_module(module), name)


def _serve(lines: TextIO, answers: TextIO) -> None:
    opening = load(lines.readline())
    _answer(answers, {})
    sys.path.insert(0, opening["directory"])
    search = Search(opening["config"], opening["hyperparameters"], opening["seed"])
    handler = None
    for line in lines:
        try:
            if handler is None:
                handler = _EventHandler(_load(opening["config"]["class"])(search))
            handler.handle(load(line))
            answer: dict[str, Any] = {"orders": search.take_orders()}
            json.dumps(answer)  # what cannot be sent is the method's fault too
        except Exception:
            answer = {"error": traceback.format_exc()}
        _answer(answers, answer)


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def main() -> None:
    end_with_parent()
    # The output of the user's method must not mix with our lines: it goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
