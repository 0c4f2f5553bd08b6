"""Who searches: ours through its simulator, peers through their own schedulers and samplers.

All have 8 workers, rungs at 3, 9 and 27 epochs and the same budget of epochs.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import importlib.util
import logging
import pathlib
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from benchmarks.search.space import SPACE
from benchmarks.search.tasks import EPOCHS
from determined.platform.search import events as e
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.searcher import Searcher, Step
from determined.platform.search.simulation.simulator import simulate
from determined.platform.search.space import Space

WORKERS, DIVISOR, FIRST_RUNG = 8, 3, 3


@dataclass
class Run:
    """What one contender reached with one seed."""

    best: list[tuple[int, float]] = field(default_factory=list)  # (epochs used, best loss so far)
    new_trial: list[float] = field(default_factory=list)  # seconds of processor time
    result: list[float] = field(default_factory=list)
    num_trials: int = 0

    def at(self, units: float) -> float:
        """Return the best loss seen within so many epochs."""
        return min((loss for used, loss in self.best if used <= units), default=float("inf"))


class _Timed(Searcher):
    run: Run

    def handle(self, event: e.Event) -> Step:
        began = time.thread_time()
        step = super().handle(event)
        seconds = time.thread_time() - began
        creates = any(isinstance(action, e.Create) for action in step.actions)
        if not isinstance(event, e.InitialTrials):
            (self.run.new_trial if creates else self.run.result).append(seconds)
        return step


AnySearcher = TypeVar("AnySearcher", bound=Searcher)


def our_searcher(kind: type[AnySearcher], seed: int, budget: int, **settings: Any) -> AnySearcher:
    """Return a search with the rungs and workers of the race."""
    config = {
        "metric": "loss",
        "max_trials": 100_000 if settings["name"] != "adaptive_asha" else budget // 6,
        "max_concurrent_trials": WORKERS,
        "max_time": EPOCHS,
        "time_metric": "epochs",
        "divisor": DIVISOR,
        "num_rungs": 3,
        "max_rungs": 3,
        **settings,
    }
    return kind(config, SPACE, seed)


def _ours(**settings: Any) -> Callable[[Any, int, int], Run]:
    def play(task: Any, seed: int, budget: int) -> Run:
        searcher = our_searcher(_Timed, seed, budget, **settings)
        searcher.run = Run()
        outcome = simulate(searcher, task, WORKERS, range(1, EPOCHS + 1), max_units=budget)
        searcher.run.best, searcher.run.num_trials = outcome.best, outcome.num_trials
        return searcher.run

    return play


class Peer(Protocol):
    """A library's search: gives configurations, and says after each result whether to go on.

    A new trial comes with its values and the epochs that an earlier one with these has trained.
    """

    def new(self) -> tuple[Any, dict[str, Any], int]: ...
    def go_on(self, trial: Any, epoch: int, loss: float) -> bool: ...
    def end(self, trial: Any, loss: float, finished: bool) -> None: ...


def _peer(build: Callable[[int], Peer]) -> Callable[[Any, int, int], Run]:
    def play(task: Any, seed: int, budget: int) -> Run:
        import heapq

        run, peer = Run(), build(seed)
        heap: list[tuple[float, int, Any, dict[str, Any], int]] = []
        used = order = 0

        def start(now: float) -> None:
            nonlocal order
            began = time.thread_time()
            trial, hparams, trained = peer.new()
            run.new_trial.append(time.thread_time() - began)
            run.num_trials += 1
            order += 1
            when = now + task.seconds(hparams, 0)
            heapq.heappush(heap, (when, order, trial, hparams, trained + 1))

        for _ in range(WORKERS):
            start(0.0)
        while used < budget:
            now, _, trial, hparams, epoch = heapq.heappop(heap)
            used += 1
            loss = task.value(hparams, 0, epoch)
            if not run.best or loss < run.best[-1][1]:
                run.best.append((used, loss))
            began = time.thread_time()
            goes_on = peer.go_on(trial, epoch, loss) and epoch < EPOCHS
            if not goes_on:
                peer.end(trial, loss, epoch == EPOCHS)
            run.result.append(time.thread_time() - began)
            if goes_on:
                order += 1
                when = now + task.seconds(hparams, 0)
                heapq.heappush(heap, (when, order, trial, hparams, epoch + 1))
            else:
                start(now)
        return run

    return play


class _Optuna:
    def __init__(self, sampler: str, pruner: str, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        pruners = optuna.pruners
        pruner_builders: dict[str, Any] = {
            "none": pruners.NopPruner,
            "halving": lambda: pruners.SuccessiveHalvingPruner(FIRST_RUNG, DIVISOR),
            "hyperband": lambda: pruners.HyperbandPruner(FIRST_RUNG, EPOCHS, DIVISOR),
        }
        built = pruner_builders[pruner]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samplers = optuna.samplers
            samplers_by_name: dict[str, Any] = {
                "random": samplers.RandomSampler,
                "tpe": samplers.TPESampler,
                "tpe multivariate": functools.partial(samplers.TPESampler, multivariate=True),
            }
            # Hyperband chooses brackets by the name of the study.
            self._study = optuna.create_study(
                sampler=samplers_by_name[sampler](seed=seed),
                pruner=built,
                study_name=f"race-{seed}",
            )
        self._optuna = optuna

    def new(self) -> tuple[Any, dict[str, Any], int]:
        trial = self._study.ask()
        hparams = {name: self._suggest(trial, name, leaf) for name, leaf in SPACE.items()}
        return trial, hparams, 0

    def _suggest(self, trial: Any, name: str, leaf: dict[str, Any]) -> Any:
        if leaf["type"] == "categorical":
            return trial.suggest_categorical(name, leaf["vals"])
        low, high = leaf["minval"], leaf["maxval"]
        if leaf["type"] == "int":
            return trial.suggest_int(name, low, high)
        if leaf["type"] == "log":
            return trial.suggest_float(name, leaf["base"] ** low, leaf["base"] ** high, log=True)
        return trial.suggest_float(name, low, high)

    def go_on(self, trial: Any, epoch: int, loss: float) -> bool:
        trial.report(loss, epoch)
        return not trial.should_prune()

    def end(self, trial: Any, loss: float, finished: bool) -> None:
        states = self._optuna.trial.TrialState
        if finished:
            self._study.tell(trial, loss)
        else:
            self._study.tell(trial, state=states.PRUNED)


class RayAsha:
    """Ray Tune's asynchronous halving on our samples: only its decisions differ."""

    def __init__(self, seed: int) -> None:
        schedulers = importlib.import_module("ray.tune.schedulers")
        self._space, self._stream = Space(SPACE), Stream(seed)
        self._scheduler = schedulers.AsyncHyperBandScheduler(
            time_attr="epochs",
            metric="loss",
            mode="min",
            max_t=EPOCHS,
            grace_period=FIRST_RUNG,
            reduction_factor=DIVISOR,
        )

    def new(self) -> tuple[Any, dict[str, Any], int]:
        hparams = self._space.values(self._space.draw(self._stream))
        trial = self.add(self._stream.request_id())
        self._stream.trial_seed()
        return trial, hparams, 0

    def add(self, trial_id: str) -> RayTrial:
        trial = RayTrial(trial_id)
        self._scheduler.on_trial_add(None, trial)
        return trial

    def go_on(self, trial: Any, epoch: int, loss: float) -> bool:
        result = {"epochs": epoch, "loss": loss}
        return bool(self._scheduler.on_trial_result(None, trial, result) == "CONTINUE")

    def end(self, trial: Any, loss: float, finished: bool) -> None:
        self._scheduler.on_trial_complete(None, trial, {"epochs": EPOCHS, "loss": loss})


class RayTrial:
    """What Ray's schedulers want to know of a trial."""

    def __init__(self, trial_id: str) -> None:
        self.trial_id = trial_id


class _SyneTune:
    """One of Syne Tune's asynchronous searches with rungs, by the name of its class."""

    def __init__(self, kind: str, seed: int) -> None:
        logging.getLogger("syne_tune").setLevel(logging.ERROR)
        spaces = importlib.import_module("syne_tune.config_space")
        baselines = importlib.import_module("syne_tune.optimizer.baselines")
        self._trial = importlib.import_module("syne_tune.backend.trial_status").Trial
        self._count = 0
        self._scheduler = getattr(baselines, kind)(
            {name: self._domain(spaces, leaf) for name, leaf in SPACE.items()},
            metric="loss",
            time_attr="epochs",
            max_t=EPOCHS,
            grace_period=FIRST_RUNG,
            reduction_factor=DIVISOR,
            random_seed=seed,
        )

    @staticmethod
    def _domain(spaces: Any, leaf: dict[str, Any]) -> Any:
        if leaf["type"] == "categorical":
            return spaces.choice(leaf["vals"])
        low, high = leaf["minval"], leaf["maxval"]
        if leaf["type"] == "int":
            return spaces.randint(low, high)
        if leaf["type"] == "log":
            return spaces.loguniform(leaf["base"] ** low, leaf["base"] ** high)
        return spaces.uniform(low, high)

    def new(self) -> tuple[Any, dict[str, Any], int]:
        hparams = dict(self._scheduler.suggest().config)
        trial = self._trial(self._count, hparams, datetime.datetime.now())
        self._count += 1
        self._scheduler.on_trial_add(trial)
        return trial, hparams, 0

    def go_on(self, trial: Any, epoch: int, loss: float) -> bool:
        result = {"epochs": epoch, "loss": loss}
        return bool(self._scheduler.on_trial_result(trial, result) == "CONTINUE")

    def end(self, trial: Any, loss: float, finished: bool) -> None:
        if finished:
            self._scheduler.on_trial_complete(trial, {"epochs": EPOCHS, "loss": loss})


class _Smac:
    """SMAC3's multi-fidelity search: random forests and Hyperband, asked and told by us."""

    def __init__(self, seed: int) -> None:
        smac, spaces = (importlib.import_module(name) for name in ("smac", "ConfigSpace"))
        self._value = importlib.import_module("smac.runhistory.dataclasses").TrialValue
        self._trained: dict[Any, int] = {}
        space = spaces.ConfigurationSpace(seed=seed)
        space.add([self._domain(spaces, name, leaf) for name, leaf in SPACE.items()])
        self._folder = tempfile.TemporaryDirectory()
        scenario = smac.Scenario(
            space,
            deterministic=True,
            n_trials=100_000,
            min_budget=FIRST_RUNG,
            max_budget=EPOCHS,
            seed=seed % 2**31,
            output_directory=pathlib.Path(self._folder.name),
        )
        facade = smac.MultiFidelityFacade
        self._smac = facade(
            scenario,
            lambda config, seed=0, budget=0: 0.0,
            intensifier=facade.get_intensifier(scenario, eta=DIVISOR),
            logging_level=False,
            overwrite=True,
        )

    @staticmethod
    def _domain(spaces: Any, name: str, leaf: dict[str, Any]) -> Any:
        if leaf["type"] == "categorical":
            return spaces.Categorical(name, leaf["vals"])
        low, high = leaf["minval"], leaf["maxval"]
        if leaf["type"] == "int":
            return spaces.Integer(name, (low, high))
        if leaf["type"] == "log":
            return spaces.Float(name, (leaf["base"] ** low, leaf["base"] ** high), log=True)
        return spaces.Float(name, (low, high))

    def new(self) -> tuple[Any, dict[str, Any], int]:
        trial = self._smac.ask()
        return trial, dict(trial.config), self._trained.get(trial.config, 0)

    def go_on(self, trial: Any, epoch: int, loss: float) -> bool:
        self._trained[trial.config] = max(epoch, self._trained.get(trial.config, 0))
        return bool(epoch < trial.budget)

    def end(self, trial: Any, loss: float, finished: bool) -> None:
        self._smac.tell(trial, self._value(cost=loss), save=False)


def contenders() -> dict[str, Callable[[Any, int, int], Run]]:
    """Return everyone who is installed, by name; a play takes task, seed and budget."""
    found: dict[str, Callable[[Any, int, int], Run]] = {
        "ours, random": _ours(name="random"),
        "ours, async_halving": _ours(name="async_halving"),
        "ours, promotion": _ours(name="async_halving", stop_once=False),
        "ours, adaptive_asha": _ours(name="adaptive_asha"),
        "ours, auto": _ours(name="async_halving", sampler="auto"),
        "ours, auto + promotion": _ours(name="async_halving", sampler="auto", stop_once=False),
    }
    if importlib.util.find_spec("optuna"):
        found["ours, tpe on rungs"] = _ours(name="async_halving", sampler="tpe")
        found["ours, tpe + promotion"] = _ours(name="async_halving", sampler="tpe", stop_once=False)
        for sampler in ("random", "tpe"):
            for pruner in ("halving", "hyperband", "none"):
                if (sampler, pruner) != ("random", "none"):
                    found[f"optuna, {sampler} + {pruner}"] = _optuna(sampler, pruner)
        found["optuna, tpe multivariate"] = _optuna("tpe multivariate", "none")
    if importlib.util.find_spec("ray"):
        found["ray, ASHA"] = _peer(RayAsha)
    if importlib.util.find_spec("syne_tune"):
        for kind in ("ASHA", "BOHB"):
            found[f"syne-tune, {kind}"] = _syne_tune(kind)
    if importlib.util.find_spec("smac"):
        found["smac, multi-fidelity"] = _peer(_Smac)
    return found


def _optuna(sampler: str, pruner: str) -> Callable[[Any, int, int], Run]:
    return _peer(lambda seed: _Optuna(sampler, pruner, seed))


def _syne_tune(kind: str) -> Callable[[Any, int, int], Run]:
    return _peer(lambda seed: _SyneTune(kind, seed))
