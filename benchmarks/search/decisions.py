"""What a decision costs, with few and many trials live, and with ten thousand finished.

python -m benchmarks.search.decisions
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import psutil

from benchmarks.search.space import SPACE
from determined.platform.search import events as e
from determined.platform.search.sampling.model import ProposalRequest
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.sampling.samplers import build_model
from determined.platform.search.searcher import Searcher, Step
from determined.platform.search.simulation.curves import SyntheticCurves
from determined.platform.search.simulation.simulator import simulate
from determined.platform.search.space import Point, Space

_RUNGS = [1, 4, 16, 64]
_ROUNDS = 3


class _Timed(Searcher):
    seconds: list[float]

    def handle(self, event: e.Event) -> Step:
        began = time.thread_time()
        step = super().handle(event)
        if step.actions and not isinstance(event, e.InitialTrials):
            self.seconds.append(time.thread_time() - began)
        return step


def measure(search: dict[str, Any], max_trials: int, live: int) -> str:
    """Return median and 99th percentile of the processor time of events that led to actions.

    The same search runs some times, and each decision counts with its fastest: what a busy machine
    adds is not the search's.
    """
    usual = {"metric": "loss", "max_time": 64, "time_metric": "epochs"}
    if search["name"] == "async_halving":
        usual["num_rungs"] = 4
    config = {**usual, "max_trials": max_trials, "max_concurrent_trials": live, **search}
    rounds: list[list[float]] = []
    began = time.thread_time()
    for _ in range(_ROUNDS):
        searcher = _Timed(config, SPACE, 1)
        searcher.seconds = []
        simulate(searcher, SyntheticCurves(), live, _RUNGS)
        rounds.append(searcher.seconds[-1000:])  # when all but the last trials are finished
    whole = (time.thread_time() - began) / _ROUNDS
    best = sorted(min(turns) for turns in zip(*rounds, strict=True))
    median, late = statistics.median(best), best[int(0.99 * len(best))]
    return f"{1e6 * median:8.1f} us median, {1e6 * late:8.1f} us 99th, simulated in {whole:.1f} s"


class _Late:
    """Proposes by chance until the last trials: their proposals are what is measured."""

    def __init__(self, last: int) -> None:
        self._last, self._space = last, Space(SPACE)
        self._model = build_model("auto", self._space)
        self.seconds: list[float] = []

    def propose(self, request: ProposalRequest) -> Point:
        if request.index < self._last:
            return self._space.draw(Stream(request.seed))
        began = time.thread_time()
        point = self._model.propose(request)
        self.seconds.append(time.thread_time() - began)
        return point


def many_results(max_trials: int, live: int) -> str:
    """Return what the last proposals of `auto` cost, and the memory of a search of this size."""
    config = {"name": "async_halving", "metric": "loss", "max_time": 64, "time_metric": "epochs"}
    config |= {"num_rungs": 4, "sampler": "auto", "max_trials": max_trials, "stop_once": False}
    model = _Late(max_trials - 200)
    before = _resident()
    searcher = _Timed({**config, "max_concurrent_trials": live}, SPACE, 1, model=model)
    searcher.seconds = []
    simulate(searcher, SyntheticCurves(), live, _RUNGS)
    whole = sorted(searcher.seconds[-200:])
    own = sorted(model.seconds)
    return (
        f"{1e3 * statistics.median(own):.1f} ms median and {1e3 * own[-1]:.1f} ms at most in the "
        f"model; events {1e3 * statistics.median(whole):.1f} ms median; "
        f"{(_resident() - before) / 2**20:.0f} MB with all trials of the simulation"
    )


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def main() -> None:
    methods: dict[str, dict[str, Any]] = {
        "random": {"name": "random"},
        "async_halving": {"name": "async_halving"},
        "promotion": {"name": "async_halving", "stop_once": False},
        "adaptive_asha": {"name": "adaptive_asha"},
    }
    for name, search in methods.items():
        for max_trials, live in ((1000, 10), (10_000, 10), (10_000, 1000)):
            found = measure(search, max_trials, live)
            print(f"{name:<14} {max_trials:6} trials, {live:4} live {found}")
    for sampler in ("auto", "tpe", "cmaes", "qmc"):
        for max_trials, live in ((300, 8), (1000, 200)):
            found = measure({"name": "async_halving", "sampler": sampler}, max_trials, live)
            print(f"{sampler:<14} {max_trials:6} trials, {live:4} live {found}")
    for max_trials, live in ((10_000, 8), (10_000, 1000)):
        print(f"{'auto':<14} {max_trials:6} trials, {live:4} live {many_results(max_trials, live)}")


if __name__ == "__main__":
    main()
