"""How often Ray Tune's ASHA takes the decision that `async_halving` takes, result by result.

python -m benchmarks.search.agreement      needs ray; trains the curves first, if need be

Both see the same results in the same order. A difference is explained if it is the one that the
two rules imply: Ray cuts at an interpolated percentile of the results before, we count a rank.
"""

from __future__ import annotations

from typing import Any

from benchmarks.search.contenders import DIVISOR, WORKERS, RayAsha, RayTrial, our_searcher
from benchmarks.search.race import BUDGET
from benchmarks.search.tasks import EPOCHS, Crossing, all_tasks
from determined.platform.search import events as e
from determined.platform.search.searcher import Searcher, Step
from determined.platform.search.simulation.simulator import simulate

_SEEDS = 20


class _Compared(Searcher):
    """Decides as ever, and asks Ray at every rung."""

    def compare(self) -> _Compared:
        self.ray = RayAsha(0)
        self.trials: dict[str, RayTrial] = {}
        self.rungs: dict[int, list[float]] = {3: [], 9: []}
        self.counts = {"decisions": 0, "equal": 0, "explained": 0}
        return self

    def handle(self, event: e.Event) -> Step:
        step = super().handle(event)
        for action in step.actions:
            if isinstance(action, e.Create):
                self.trials[action.request_id] = self.ray.add(action.request_id)
        if isinstance(event, e.ValidationCompleted):
            self._decide(event, any(isinstance(action, e.Stop) for action in step.actions))
        return step

    def _decide(self, event: e.ValidationCompleted, stopped: bool) -> None:
        epoch, loss = event.metrics["epochs"], event.metrics["loss"]
        theirs = self.ray.go_on(self.trials[event.request_id], epoch, loss)
        if epoch not in self.rungs:
            return
        earlier = self.rungs[epoch]
        better, count = sum(other < loss for other in earlier), len(earlier) + 1
        earlier.append(loss)
        between = max(count // DIVISOR, 1) <= better < (count - 2) / DIVISOR + 1
        self.counts["decisions"] += 1
        self.counts["equal"] += theirs is not stopped
        self.counts["explained"] += theirs is stopped and between and stopped


def main() -> None:
    whole: dict[str, int] = {}
    for task in (task for task in all_tasks() if not isinstance(task, Crossing)):
        counts: dict[str, int] = {}
        for seed in range(_SEEDS):
            searcher: Any = our_searcher(_Compared, seed, BUDGET, name="async_halving").compare()
            simulate(searcher, task, WORKERS, range(1, EPOCHS + 1), max_units=BUDGET)
            for key, number in searcher.counts.items():
                counts[key] = counts.get(key, 0) + number
                whole[key] = whole.get(key, 0) + number
        print(f"{task.name:<20} {_line(counts)}", flush=True)
    print(f"{'all':<20} {_line(whole)}")


def _line(counts: dict[str, int]) -> str:
    different = counts["decisions"] - counts["equal"]
    return (
        f"{counts['decisions']} decisions, {counts['equal'] / counts['decisions']:.1%} equal; "
        f"of {different} others {counts['explained']} are Ray's next ranks"
    )


if __name__ == "__main__":
    main()
