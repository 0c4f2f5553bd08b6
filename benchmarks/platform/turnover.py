"""How fast short trials follow each other on two slots: ours warm and cold, Ray Tune, optuna.

Each contender's figure is its seconds per trial: the slow ones run fewer trials.
"""

from __future__ import annotations

import time

from benchmarks.platform import peers
from benchmarks.platform.figure import Figure, in_turns, ratio
from benchmarks.platform.site import Site, open_site

_SPACE = {"lr": {"type": "double", "minval": 0.01, "maxval": 0.1}}


def measure(is_quick: bool) -> list[Figure]:
    return [*_nets(is_quick), *_reports(is_quick)]


def _nets(is_quick: bool) -> list[Figure]:
    trials, slow_trials = (24, 6) if is_quick else (64, 24)
    with open_site() as site:
        search(site, "net", 2, warm=True)  # loads the helper
        contenders = {
            "warm": lambda: search(site, "net", trials, warm=True),
            "cold": lambda: search(site, "net", slow_trials, warm=False),
        }
        if peers.is_installed("ray.tune", "torch"):
            contenders["Ray Tune"] = lambda: _peer("ray_tune", "net", trials=slow_trials)
        if peers.is_installed("optuna", "torch"):
            contenders["optuna"] = lambda: _peer("optuna_processes", trials=slow_trials)
        samples = in_turns(1 if is_quick else 2, **contenders)
    return [
        Figure(
            f"{trials} trials of 20 batches of a tiny net, warm over {name}, per trial",
            ratio(samples, "warm", name),
            "times",
            goal=0.25,
            samples={"warm": samples["warm"], name: samples[name]},
        )
        for name in samples
        if name != "warm"
    ]


def _reports(is_quick: bool) -> list[Figure]:
    trials, slow_trials = (40, 12) if is_quick else (200, 40)
    with open_site() as site:
        search(site, "reports", 2, warm=True)
        contenders = {"ours": lambda: search(site, "reports", trials, warm=True)}
        if peers.is_installed("ray.tune"):
            contenders["Ray Tune"] = lambda: _peer("ray_tune", "reports", trials=slow_trials)
        samples = in_turns(1 if is_quick else 2, **contenders)
    if "Ray Tune" not in samples:
        return [Figure("trials that only report 10 times, each", samples["ours"][0])]
    return [
        Figure(
            f"{trials} trials that only report 10 times, over Ray Tune, per trial",
            ratio(samples, "ours", "Ray Tune"),
            "times",
            goal=0.1,
            samples=samples,
        )
    ]


def search(site: Site, script: str, trials: int, *, warm: bool) -> float:
    """Return the seconds per trial of a random search."""
    searcher = {"name": "random", "max_trials": trials, "max_concurrent_trials": 16}
    began = time.monotonic()
    experiment_id = site.create(
        script, warm=warm, searcher={"metric": "loss", **searcher}, hyperparameters=_SPACE
    )
    site.finish(experiment_id)
    return (time.monotonic() - began) / trials


def _peer(*words: str, trials: int) -> float:
    seconds: float = peers.run(*words, trials)["seconds"]
    return seconds / trials
