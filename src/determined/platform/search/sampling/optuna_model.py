"""Proposals from optuna's samplers, computed in memory: no study is stored, so none can be lost.

Each request creates a new sampler from a seed and the results, so an answer depends on nothing
else. Only public samplers are used; the storage that they expect is a list.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from determined.platform.search.sampling.model import ProposalRequest
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.sampling.results import WORST
from determined.platform.search.space import Leaf, Point, Space


class OptunaModel:
    """One of optuna's samplers, applied to the points of a space."""

    def __init__(self, sampler: str, space: Space) -> None:
        try:
            import optuna
        except ImportError:
            raise ImportError(
                f"searcher.sampler: `{sampler}` needs optuna. Install it: "
                "`pip install 'determined-pytorch[optuna]'`."
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        self._sampler = sampler
        self._leaves = space.searched
        self._space = space
        # These two see an index as a number; the others know categories.
        ordered = sampler in ("cmaes", "qmc")
        self._names = [f"p{i:04d}" for i in range(len(self._leaves))]
        self._distributions = {
            name: _distribution(optuna.distributions, leaf, ordered)
            for name, leaf in zip(self._names, self._leaves, strict=True)
        }
        self._storage = _list_storage(optuna)()
        self._study = optuna.create_study(storage=self._storage, study_name="search")

    def propose(self, request: ProposalRequest) -> Point:
        worst = max((value for _, _, value, _ in request.observed if value < WORST), default=0.0)
        completed = [
            self._trial(number, point, min(value, worst))
            for number, point, value, _ in request.observed
        ]
        pending = [self._trial(number, point, None) for number, point in request.pending]
        self._storage.next_index = request.index
        # Sources replace a study's own trials.
        self._storage.trials = [] if self._sampler == "cmaes" else completed + pending
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental options, and columns of equal values
            sampler = self._build(request.seed, completed)
            found = sampler.sample_relative(
                self._study, self._trial(request.index, None, None), dict(self._distributions)
            )
        return [
            self._number(leaf, found[name])
            for leaf, name in zip(self._leaves, self._names, strict=True)
        ]

    def _build(self, seed: int, completed: list[Any]) -> Any:
        samplers = self._optuna.samplers
        if self._sampler == "tpe":
            return samplers.TPESampler(
                seed=seed, multivariate=True, constant_liar=True, n_startup_trials=0
            )
        if self._sampler == "gp":
            return samplers.GPSampler(seed=seed, n_startup_trials=0)
        if self._sampler == "qmc":
            return samplers.QMCSampler(seed=seed, scramble=True, warn_asynchronous_seeding=False)
        return samplers.CmaEsSampler(seed=seed, n_startup_trials=0, source_trials=completed)

    def _trial(self, number: int, point: Point | None, value: float | None) -> Any:
        state = self._optuna.trial.TrialState
        if point is not None:  # an inactive value must not attract or repel proposals
            point = self._space.completed(point, Stream(number))
        params = {} if point is None else dict(zip(self._names, point, strict=True))
        return self._optuna.trial.FrozenTrial(
            number=number,
            trial_id=number,
            state=state.RUNNING if value is None else state.COMPLETE,
            value=value,
            datetime_start=None,
            datetime_complete=None,
            params=params,
            distributions={} if point is None else self._distributions,
            user_attrs={},
            system_attrs={},
            intermediate_values={},
        )

    @staticmethod
    def _number(leaf: Leaf, value: Any) -> float:
        if leaf.is_whole:
            return int(value)
        # The upper end is not part of a range.
        return min(float(value), math.nextafter(leaf.high, leaf.low))


def _distribution(distributions: Any, leaf: Leaf, ordered: bool) -> Any:
    if leaf.kind in ("int", "steps", "log_int"):
        is_log = {"log": True} if leaf.kind == "log_int" else {}
        return distributions.IntDistribution(int(leaf.low), int(leaf.high), **is_log)
    if leaf.kind == "categorical":
        count = len(leaf.values)
        return (
            distributions.IntDistribution(0, count - 1)
            if ordered
            else distributions.CategoricalDistribution(tuple(range(count)))
        )
    return distributions.FloatDistribution(float(leaf.low), float(leaf.high))


def _list_storage(optuna: Any) -> Any:
    """Return a storage that shows a list of trials and ignores what samplers write."""

    class ListStorage(optuna.storages.InMemoryStorage):  # type: ignore[misc]  # optuna may be absent
        trials: list[Any] = []
        next_index = 0

        def get_all_trials(
            self, study_id: int, deepcopy: bool = True, states: Any = None
        ) -> list[Any]:
            return [trial for trial in self.trials if states is None or trial.state in states]

        def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
            pass

        def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
            pass

        def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
            return _Counter(self.next_index - 1)

    return ListStorage


class _Counter(dict[str, Any]):
    """Tells the sampler of a sequence, whatever its key, which point it gave last."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self._last = last

    def get(self, key: str, default: Any = None) -> Any:
        return self._last if key.startswith("qmc:") else default
