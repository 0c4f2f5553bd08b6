"""Population-based training against Ray Tune's, on a task where schedules matter.

    python -m benchmarks.search.population [--seeds 100] [--without-ray]

A member descends a noisy, ill-conditioned quadratic function. A large learning rate is best at
first and a small one at the end, so no constant rate comes near a schedule. All contenders have
the same members, intervals, quantiles and factors, and thus the same budget.
"""

from __future__ import annotations

import argparse
import random
import statistics
from typing import Any

from determined.platform.search import events as e
from determined.platform.search.searcher import Searcher

MEMBERS, INTERVAL, GENERATIONS = 8, 10, 20
_LENGTH = INTERVAL * GENERATIONS
_CURVATURES = [10.0 ** (-i / 2) for i in range(7)]  # from 1 to 0.001
_LOW, _HIGH = -3.0, 0.25  # exponents of the learning rate
_FACTORS = (0.8, 1.25)
_QUANTILE = _RESAMPLE = 0.25


class Descent:
    """The state of one member."""

    def __init__(self, weights: list[float] | None = None, steps: int = 0) -> None:
        self.weights = list(weights or [3.0] * len(_CURVATURES))
        self.steps = steps

    def train(self, rate: float, noise: str) -> float:
        """Train for one interval, and return the loss."""
        for _ in range(INTERVAL):
            draws = random.Random(f"{noise} {self.steps}")
            for i, curvature in enumerate(_CURVATURES):
                gradient = curvature * self.weights[i] + draws.gauss(0, 0.3)
                self.weights[i] = max(min(self.weights[i] - rate * gradient, 1e6), -1e6)
            self.steps += 1
        return self.loss

    @property
    def loss(self) -> float:
        return sum(c * w * w / 2 for c, w in zip(_CURVATURES, self.weights, strict=True))


def ours(seed: int) -> float:
    """Return the best final loss of our population; members report in a random order."""
    search = {
        "name": "pbt", "metric": "loss", "population": MEMBERS, "interval": INTERVAL,
        "max_time": _LENGTH, "quantile": _QUANTILE, "resample": _RESAMPLE,
        "perturb": list(_FACTORS),
    }  # fmt: skip
    space = {"rate": {"type": "log", "base": 10.0, "minval": _LOW, "maxval": _HIGH}}
    return _play(Searcher(search, space, seed), seed)


def constant(seed: int) -> float:
    """Return the best final loss of as many members that keep their rates: a random search."""
    space = {"rate": {"type": "log", "base": 10.0, "minval": _LOW, "maxval": _HIGH}}
    search = {"name": "random", "metric": "loss", "max_trials": MEMBERS}
    return _play(Searcher(search, space, seed), seed)


def _play(searcher: Searcher, seed: int) -> float:
    timing = random.Random()  # the order in which members report changes nothing
    members: dict[str, Descent] = {}
    rates: dict[str, float] = {}
    numbers: dict[str, int] = {}
    training: set[str] = set()
    waiting: list[e.Event] = [e.InitialTrials()]
    while waiting or training:
        if not waiting:
            name = timing.choice(sorted(training))
            loss = members[name].train(rates[name], f"{seed} {numbers[name]}")
            steps = members[name].steps
            waiting.append(e.ValidationCompleted(name, {"loss": loss}, steps))
            if steps == _LENGTH:
                training.discard(name)
                waiting.append(e.TrialExited(name))
        for action in searcher.handle(waiting.pop(0)).actions:
            if isinstance(action, e.Create):
                parent = members[action.parent_id] if isinstance(action, e.Fork) else Descent()
                members[action.request_id] = Descent(parent.weights, parent.steps)
                rates[action.request_id] = action.hparams["rate"]
                numbers[action.request_id] = len(numbers)
                training.add(action.request_id)
            elif isinstance(action, e.Pause):
                training.discard(action.request_id)
                waiting.append(e.TrialPaused(action.request_id))
            elif isinstance(action, e.Resume):
                training.add(action.request_id)
            elif isinstance(action, e.Stop):
                if action.request_id in training or members[action.request_id].steps < _LENGTH:
                    waiting.append(e.TrialExited(action.request_id))
                training.discard(action.request_id)
    return min(m.loss for m in members.values() if m.steps == _LENGTH)


class _Member:
    """What Ray Tune's scheduler asks of a trial, and its state."""

    experiment_tag = ""

    def __init__(self, number: int, rate: float) -> None:
        self.number, self.rate, self.descent = number, rate, Descent()

    def is_finished(self) -> bool:
        return False


def rays(seed: int, synch: bool) -> float:
    """Return the best final loss of a population that Ray Tune's own scheduler ranks and changes.

    Its ranking and exploration run here without its actors, which changes nothing but the time.
    Without `synch`, its default, members are compared when they report, in a random order.
    """
    import numpy as np
    from ray.tune.schedulers import PopulationBasedTraining, pbt
    from ray.tune.search.sample import Float

    timing = random.Random()
    random.seed(seed)
    np.random.seed(seed)
    rates = Float(10**_LOW, 10**_HIGH).loguniform()
    scheduler = PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=1, synch=synch,
        hyperparam_mutations={"rate": rates}, quantile_fraction=_QUANTILE,
        resample_probability=_RESAMPLE, perturbation_factors=_FACTORS,
    )  # fmt: skip
    members = [_Member(i, float(rates.sample())) for i in range(MEMBERS)]
    scores = scheduler._trial_state
    for member in members:
        scores[member] = pbt._PBTTrialState(member)

    def replace(member: _Member) -> None:
        lower, upper = scheduler._quantiles()
        if member in lower:
            parent = random.choice(upper)
            member.descent = Descent(parent.descent.weights, parent.descent.steps)
            explored, _ = pbt._explore(
                {"rate": parent.rate}, {"rate": rates}, _RESAMPLE, _FACTORS, None
            )
            member.rate = explored["rate"]

    for _ in range(GENERATIONS):
        order = members if synch else timing.sample(members, len(members))
        for member in order:
            loss = member.descent.train(member.rate, f"{seed} {member.number}")
            scores[member].last_score = -loss
            if not synch:
                replace(member)
        if synch:
            lower, _ = scheduler._quantiles()
            for member in lower:
                replace(member)
    return min(member.descent.loss for member in members)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--without-ray", action="store_true")
    arguments = parser.parse_args()
    seeds = range(arguments.seeds)
    contenders: dict[str, Any] = {"ours": ours, "constant rates": constant}
    if not arguments.without_ray:
        contenders["Ray Tune, synch"] = lambda seed: rays(seed, synch=True)
        contenders["Ray Tune"] = lambda seed: rays(seed, synch=False)
    for name, contender in contenders.items():
        losses = [contender(seed) for seed in seeds]
        error = statistics.stdev(losses) / len(losses) ** 0.5
        repeats = "the same" if contender(0) == losses[0] else "not the same"
        print(
            f"{name:16} mean {statistics.mean(losses):.4f} +- {1.96 * error:.4f}, "
            f"median {statistics.median(losses):.4f}; seed 0 again: {repeats}"
        )


if __name__ == "__main__":
    main()
