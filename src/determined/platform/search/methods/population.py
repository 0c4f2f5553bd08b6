"""Population-based training (`pbt`): members train in turns of one interval, a generation.

A generation is decided when every member has been paused at its end or has ended, so the timing
has no influence. Members are ranked by their results, ties by number. The last ones are replaced by
forks of the first ones: new trials that share all batches so far with their parent, and continue
with other hyperparameters. All others continue as they are.

A trial's `bracket` is the generation in which it began, `values[i]` its result i generations later.
"""

from __future__ import annotations

from typing import Any

from determined.platform.search.events import Create, LimitsRaised
from determined.platform.search.methods.perturbation import Perturbation
from determined.platform.search.sampling.results import WORST
from determined.platform.search.search_state import (
    DONE,
    FAILED,
    INVALID,
    PAUSED,
    PAUSING,
    RUNNING,
    STOPPED,
    SearchState,
    Trial,
    unfinished_to_rerun,
)
from determined.platform.search.settings import Settings
from determined.platform.search.space import Space

_LOST = (*FAILED, INVALID)


class Population:
    """The members of the current generation, and where those that are forks come from."""

    def __init__(self, settings: Settings, space: Space) -> None:
        self.interval, self.unit = settings.interval, settings.time_metric
        self._size, self._quantile = settings.population, settings.quantile
        self._max_time = settings.max_time
        self._perturbation = Perturbation(settings, space)
        self.generation = 0
        self.members: list[int] = []
        self.origins: dict[int, tuple[int, int]] = {}  # fork -> its parent, and whom it replaces
        self._hparams: dict[int, dict[str, Any]] = {}  # of members
        self._results: dict[int, tuple[float, int]] = {}  # of members: value, batches trained

    @property
    def num_generations(self) -> int:
        return max(self._max_time // self.interval, 1)

    @property
    def _is_last(self) -> bool:
        return self.generation + 1 >= self.num_generations

    @property
    def _end(self) -> int:
        """How long members have trained when the generation ends."""
        return (self.generation + 1) * self.interval

    def initial(self, search: SearchState) -> None:
        for _ in range(self._size):
            self._begin(search)

    def _begin(self, search: SearchState) -> None:
        trial = search.create()
        created = search.actions[-1]
        assert isinstance(created, Create)
        self.members.append(trial.number)
        self._hparams[trial.number] = created.hparams

    def validated(self, search: SearchState, trial: Trial, value: float, time: int) -> None:
        if time < self._end:
            return
        trial.values.append(value)
        self._results[trial.number] = (value, search.steps)
        so_far = f"{len(self._results)} of {len(self.members)} members are there"
        if self._is_last:
            search.stop(trial, f"finished at {time} {self.unit}: {so_far}")
        else:
            number = f"generation {self.generation + 1} of {self.num_generations}"
            search.pause(trial, f"paused at {time} {self.unit}, the end of {number}: {so_far}")

    def paused(self, search: SearchState, trial: Trial) -> None:
        trial.status = PAUSED
        self._decide(search)

    def exited_early(self, search: SearchState, trial: Trial, status: str) -> None:
        search.end(trial, status)
        is_first = self.generation == 0 and trial.number not in self._results
        if status == INVALID and is_first and not search.is_closing:
            self.members.remove(trial.number)
            del self._hparams[trial.number]
            self._begin(search)

    def exited(self, search: SearchState, trial: Trial) -> None:
        if trial.status in (RUNNING, PAUSING, PAUSED):
            search.end(trial, STOPPED if search.is_closing else DONE)
        self._decide(search)

    def _decide(self, search: SearchState) -> None:
        """Begin the next generation, if nothing of this one is missing."""
        members = [search.trials[number] for number in self.members]
        if search.is_closing or self._is_last:
            return
        if any(not trial.exited and trial.status != PAUSED for trial in members):
            return
        # Those that ended by themselves have reached the length of their training.
        able = [t for t in members if t.number in self._results and t.status in (PAUSED, STOPPED)]
        able.sort(key=lambda trial: (self._results[trial.number][0], trial.number))
        good = [trial for trial in able if self._results[trial.number][0] < WORST]
        if good:
            lost = [trial for trial in members if trial.status in _LOST]
            self._begin_generation(search, able, len(good), lost)
            return
        for trial in able:
            if not trial.exited:
                search.fail(trial, f"no member has a finite metric after {self._end} {self.unit}")

    def _begin_generation(
        self, search: SearchState, able: list[Trial], num_good: int, lost: list[Trial]
    ) -> None:
        """Replace the last of the ranking; `lost` come after all that are able to continue."""
        ranking = [*able, *lost]
        count = min(max(int(self._size * self._quantile), 1), len(ranking) // 2)
        first = min(len(ranking) - count, num_good)  # of those that are replaced
        sources = able[: max(min(count, first), 1)]
        ranks = {trial.number: i + 1 for i, trial in enumerate(ranking)}
        place = f"after {self._end} {self.unit}: rank {{}} of {len(ranking)}"
        results, hparams = self._results, self._hparams
        self.generation += 1
        self.members, self._hparams, self._results = [], {}, {}
        in_order = sorted(ranking, key=lambda trial: trial.number)
        for trial in in_order:
            rank = ranks[trial.number]
            if rank <= first:
                trial.rung = self.generation
                self.members.append(trial.number)
                self._hparams[trial.number] = hparams[trial.number]
                search.resume(trial, f"continues {place.format(rank)}")
            elif not trial.exited:
                reason = f"replaced {place.format(rank)}"
                search.free_checkpoints(trial, reason)
                search.stop(trial, reason)
        for replaced in in_order:
            if ranks[replaced.number] <= first:
                continue
            parent = sources[search.stream.integer(0, len(sources))]
            values, changed = self._perturbation.of(hparams[parent.number], search.stream)
            what = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changed.items())
            reason = f"fork of the member that continues {place.format(ranks[parent.number])}"
            at = results[parent.number][1]
            fork = search.fork(
                parent, at, values, changed, self.generation, f"{reason}; {what or 'unchanged'}"
            )
            fork.rung = self.generation
            self.origins[fork.number] = (parent.number, replaced.number)
            self.members.append(fork.number)
            self._hparams[fork.number] = values

    def raised(self, search: SearchState, limits: LimitsRaised) -> None:
        self._max_time = max(self._max_time, limits.max_time or 0, limits.max_length or 0)
        statuses = (STOPPED, *unfinished_to_rerun(limits))
        for number in self.members:
            trial = search.trials[number]
            if not trial.exited or trial.status not in statuses:
                continue
            if number not in self._results:
                search.resume(trial, "did not finish before; runs again")
            elif trial.status in FAILED:
                search.revive(trial)
        self._decide(search)

    def progress(self, search: SearchState) -> float:
        share = len(self._results) / max(len(self.members), 1)
        return min((self.generation + share) / self.num_generations, 1.0)

    def load_results(self, search: SearchState) -> None:
        """No model learns from them."""

    def to_json(self) -> dict[str, Any]:
        return {
            "max_time": self._max_time,
            "generation": self.generation,
            "members": list(self.members),
            "hparams": [self._hparams[number] for number in self.members],
            "results": [[number, *found] for number, found in self._results.items()],
            "origins": [[number, *origin] for number, origin in self.origins.items()],
        }

    def load(self, data: dict[str, Any]) -> None:
        self._max_time, self.generation = data["max_time"], data["generation"]
        self.members = list(data["members"])
        self._hparams = dict(zip(self.members, data["hparams"], strict=True))
        self._results = {number: (value, at) for number, value, at in data["results"]}
        self.origins = {number: (parent, gone) for number, parent, gone in data["origins"]}
