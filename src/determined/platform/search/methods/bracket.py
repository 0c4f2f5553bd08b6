"""Asynchronous successive halving (ASHA): one bracket that decides as results come in.

Stopping (`stop_once: true`): at a rung, a trial continues if it is among the best 1/divisor of the
results there so far, otherwise it ends. Promotion (`stop_once: false`): otherwise it pauses, and
resumes when later results make room for it; it ends when that can no longer happen.

With `sampler: auto`, more than 1/divisor continue from a rung that turns out to predict the next
one badly (`agreement.py`).
"""

from __future__ import annotations

from typing import Any

from determined.platform.search.methods.agreement import Agreement
from determined.platform.search.methods.bracket_plans import BracketPlan
from determined.platform.search.methods.rung import Rung
from determined.platform.search.sampling.results import WORST
from determined.platform.search.search_state import (
    DONE,
    ERRORED,
    INVALID,
    OCCUPIED,
    PAUSED,
    PAUSING,
    RUNNING,
    SearchState,
    Trial,
)
from determined.platform.search.settings import Settings


class Bracket:
    """The rungs of one bracket and the trials that it may still start."""

    def __init__(self, index: int, plan: BracketPlan, settings: Settings) -> None:
        self.index = index
        self.divisor = settings.divisor
        self.stop_once = settings.stop_once
        self.unit = settings.time_metric
        self.agreements: list[Agreement] | None = None  # of each rung with the next one
        if settings.sampler == "auto":
            self.agreements = [Agreement() for _ in plan.units]
        self.rungs = [Rung(units) for units in plan.units]
        self.max_trials = plan.max_trials
        self.max_concurrent = plan.max_concurrent
        self.created = 0
        self.invalid = 0
        self.completed = 0
        self.live = 0
        self.again: list[int] = []  # failed trials to rerun, in order

    @property
    def budget(self) -> int:
        """Return how many more trials may be created."""
        return self.max_trials - (self.created - self.invalid)

    def fill(self, search: SearchState) -> None:
        """Use free capacity: reruns first, then promotions from the top down, then new trials."""
        while self.live < self.max_concurrent and not search.is_closing:
            if self.again:
                self._rerun(search, search.trials[self.again.pop(0)])
            elif self._promote(search):
                continue
            elif self.budget > 0:
                search.create(self.index)
                self.created += 1
                self.live += 1
                self.rungs[0].heading += 1
            else:
                break
        if not search.is_closing:
            self._release(search)

    def validated(self, search: SearchState, trial: Trial, value: float, time: int) -> None:
        """Pass a trial through every rung that it has reached, and decide at the last of them."""
        passed = ""
        for r in range(trial.rung, len(self.rungs)):
            rung = self.rungs[r]
            trial.rung = r
            if time < rung.units:
                break
            rung.heading -= 1
            place = rung.enter(value)
            trial.values.append(value)
            self._compare(trial, r)
            search.proposals.results.add(rung.units, value, trial.number)
            if r == len(self.rungs) - 1:
                self._end_at_top(search, trial, time, place)
                return
            keep = self._keep(r)
            if place >= keep:
                self._hold(search, trial, time, place, keep)
                return
            self.rungs[r + 1].heading += 1
            trial.rung = r + 1
            passed = f"continues at {time} {self.unit}: {_rank(place, rung, keep)}"
        if passed:
            search.continue_trial(trial, passed)
            self._release(search)

    def _end_at_top(self, search: SearchState, trial: Trial, time: int, place: int) -> None:
        rung = self.rungs[-1]
        rung.leave(trial.values[-1], trial.number)
        self.live -= 1
        rank = f"rank {place + 1} of {len(rung.values)}"
        search.stop(trial, f"finished at {time} {self.unit}, the last rung: {rank} so far")
        self.fill(search)

    def _hold(self, search: SearchState, trial: Trial, time: int, place: int, keep: int) -> None:
        """Stop or pause a trial that is not good enough so far."""
        rung = self.rungs[trial.rung]
        self.live -= 1
        rank = _rank(place, rung, keep)
        if self.stop_once:
            rung.leave(trial.values[-1], trial.number)
            search.stop(trial, f"stopped at {time} {self.unit}: {rank}")
        elif place >= (most := self._most_kept(trial.rung)):
            rung.leave(trial.values[-1], trial.number)
            search.stop(trial, f"stopped at {time} {self.unit}: {rank}, and at most {most} can")
        else:
            rung.wait(trial.values[-1], trial.number)
            search.pause(trial, f"paused at {time} {self.unit}: {rank}")
        self.fill(search)

    def _compare(self, trial: Trial, r: int) -> None:
        """Note how a trial's result at rung r compares with that at the rung before."""
        if self.agreements is not None and r > 0 and trial.values[r] < WORST:
            self.agreements[r - 1].add(trial.number, trial.values[r - 1], trial.values[r])

    def compare_all(self, trial: Trial) -> None:
        """Note the results of a trial of a restored search."""
        for r in range(1, len(trial.values)):
            self._compare(trial, r)

    def _keep(self, r: int) -> int:
        """Return how many of the results at a rung may continue."""
        values = self.rungs[r].values
        keep = int(len(values) / self.divisor)
        if self.agreements is not None:
            keep = max(keep, int(len(values) * self.agreements[r].share(self.divisor, values)))
            # The first trials need not wait: a model learns more from a long training.
            return max(keep, 1)
        # As long as new trials come, a promotion can wait until there are `divisor` results.
        return keep if not self.stop_once and self.budget > 0 else max(keep, 1)

    def _promote(self, search: SearchState) -> bool:
        """Promote the best paused trial of the highest rung whose rank allows it."""
        for r in reversed(range(len(self.rungs) - 1)):
            rung, above = self.rungs[r], self.rungs[r + 1]
            if not rung.waiting:
                continue
            keep = self._keep(r)
            if self.budget > 0 and len(above.values) + above.heading >= keep:
                continue  # enough have continued, some by early luck; a new trial is worth more
            for value, number in rung.waiting:
                place = rung.place(value)
                if place >= keep:
                    break
                trial = search.trials[number]
                if trial.status == PAUSED or trial.exited:
                    rung.forget(value, number)
                    trial.rung = r + 1
                    above.heading += 1
                    self.live += 1
                    self.completed -= trial.exited
                    rank = _rank(place, rung, keep)
                    search.resume(trial, f"promoted from {rung.units} {self.unit}: {rank}")
                    return True
        return False

    def _release(self, search: SearchState) -> None:
        """End paused trials that can no longer be promoted."""
        for r, rung in enumerate(self.rungs):
            while rung.waiting:
                value, number = rung.waiting[-1]
                place, most = rung.place(value), self._most_kept(r)
                if place < most:
                    break
                trial = search.trials[number]
                rung.forget(value, number)
                rung.leave(value, number)
                if trial.exited:
                    continue
                rank = f"rank {place + 1} of {len(rung.values)}, and at most {most} can continue"
                reason = f"can no longer be promoted from {rung.units} {self.unit}: {rank}"
                search.free_checkpoints(trial, reason)
                search.stop(trial, reason)

    def _most_kept(self, r: int) -> int:
        """Return an upper bound on how many trials will ever continue from a rung."""
        coming = self.budget + len(self.again)
        for below in self.rungs[:r]:
            coming += below.heading + len(below.waiting)
        results = len(self.rungs[r].values) + coming + self.rungs[r].heading
        if self.agreements is not None:
            # Any later result may show that a rung misleads.
            return results if self.live or self.again or self.budget > 0 else self._keep(r)
        return max(int(results / self.divisor), 1)

    def exited_early(self, search: SearchState, trial: Trial, status: str) -> None:
        was, units = trial.status, self.rungs[trial.rung].units
        self._leave_rungs(trial, was)
        search.end(trial, status)
        if status == INVALID:
            self.invalid += 1
            for rung, value in zip(self.rungs, trial.values, strict=False):
                rung.remove(value)
                search.proposals.results.remove(rung.units, value, trial.number)
            trial.values.clear()
            for agreement in self.agreements or ():
                agreement.remove(trial.number)
        elif was in OCCUPIED and len(trial.values) == trial.rung:
            self.rungs[trial.rung].enter(WORST)
            trial.values.append(WORST)
            if status == ERRORED:
                search.proposals.results.add(units, WORST, trial.number)
        self.fill(search)

    def exited(self, search: SearchState, trial: Trial) -> None:
        self.completed += 1
        if trial.status in (RUNNING, PAUSING, PAUSED):
            self._leave_rungs(trial, trial.status)
            search.end(trial, DONE)
        self.fill(search)

    def _leave_rungs(self, trial: Trial, status: str) -> None:
        if status in OCCUPIED:
            self.live -= 1
            self.rungs[trial.rung].heading -= 1
        elif trial.values:
            self.rungs[trial.rung].forget(trial.values[-1], trial.number)

    def _rerun(self, search: SearchState, trial: Trial) -> None:
        if trial.values and trial.values[-1] == WORST:
            trial.values.pop()
            self.rungs[trial.rung].remove(WORST)
            search.proposals.results.remove(self.rungs[trial.rung].units, WORST, trial.number)
        self.rungs[trial.rung].heading += 1
        self.live += 1
        self.completed -= trial.exited
        search.resume(trial, "did not finish before; runs again")

    def rerun(self, search: SearchState, statuses: tuple[str, ...]) -> None:
        """Queue trials that failed or were canceled to run again when a place is free."""
        waiting = set(self.again)
        self.again += [
            trial.number
            for trial in search.trials
            if trial.bracket == self.index
            and trial.status in statuses
            and trial.exited
            and (len(trial.values) == trial.rung or trial.values[-1] == WORST)
            and trial.number not in waiting
        ]

    def extend(self, max_time: int) -> None:
        """Add rungs at the top, so that the best finished trials train longer."""
        units = self.rungs[-1].units
        while units < max_time:
            units = min(max(int(units * self.divisor), units + 1), max_time)
            self.rungs.append(Rung(units))
            if self.agreements is not None:
                self.agreements.append(Agreement())

    def reopen(self) -> None:
        for rung in self.rungs:
            rung.reopen()

    def progress(self) -> float:
        entered, total = len(self.rungs[0].values), self.max_trials
        progress = entered / (1.2 * total)
        if entered >= total:
            progress = max(progress, (self.completed - self.invalid) / total)
        return min(progress, 1.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "rungs": [rung.to_json() for rung in self.rungs],
            "max_trials": self.max_trials,
            "max_concurrent": self.max_concurrent,
            "created": self.created,
            "invalid": self.invalid,
            "completed": self.completed,
            "live": self.live,
            "again": list(self.again),
        }

    def load(self, data: dict[str, Any]) -> None:
        self.rungs = [Rung.from_json(row) for row in data["rungs"]]
        if self.agreements is not None:
            self.agreements = [Agreement() for _ in self.rungs]
        self.max_trials, self.max_concurrent = data["max_trials"], data["max_concurrent"]
        self.created, self.invalid = data["created"], data["invalid"]
        self.completed, self.live = data["completed"], data["live"]
        self.again = list(data["again"])


def _rank(place: int, rung: Rung, keep: int) -> str:
    go_on = {0: "none continues yet", 1: "the best 1 continues"}.get(
        keep, f"the best {keep} continue"
    )
    return f"rank {place + 1} of {len(rung.values)}, {go_on}"
