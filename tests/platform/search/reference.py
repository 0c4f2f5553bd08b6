"""Halving searches written down plainly from their specification: lists and loops, no promotion.

Trials are numbers in the order of their creation. Every method returns what the platform would be
told, as words; `stop`, `fail` and `create` in that order.
"""

from __future__ import annotations

from typing import Any

WORST = 1.7976931348623157e308


def bracket_sizes(search: dict[str, Any]) -> list[int]:
    if search["name"] == "async_halving":
        return [search["num_rungs"]]
    if search["bracket_rungs"]:
        return sorted(search["bracket_rungs"], reverse=True)
    most = search["max_rungs"]
    for limit in (search["max_time"], search["max_trials"]):
        most = min(most, max(k for k in range(64) if search["divisor"] ** k <= limit) + 1)
    least = {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}
    return sorted(range(least[search["mode"]], most + 1), reverse=True)


def trials_per_bracket(search: dict[str, Any], sizes: list[int]) -> list[int]:
    total, divisor = search["max_trials"], search["divisor"]
    weights = [divisor ** (size - 1) / size for size in sizes]
    shares = [max(int(weight / sum(weights) * total), 1) for weight in weights]
    shares[0] += max(total - sum(shares), 0)
    while sum(shares) > total:  # more brackets than trials: the smallest go without
        last = max(i for i, share in enumerate(shares) if share > 0)
        shares[last] -= 1
    return shares


def limits(search: dict[str, Any], sizes: list[int], shares: list[int]) -> list[int]:
    limit, divisor = search["max_concurrent_trials"], search["divisor"]
    if search["name"] == "async_halving":
        automatic = min(max(int(divisor ** (sizes[0] - 1)), 1), search["max_trials"])
        return [limit or automatic]
    if limit == 0:
        return [max(min(shares), int(divisor)) for _ in shares]
    places = [0] * len(shares)
    for i in range(max(limit, len(shares))):
        places[i % len(shares)] += 1
    return places


class Bracket:
    """One asynchronous halving that stops for good."""

    def __init__(self, search: dict[str, Any], size: int, trials: int, limit: int) -> None:
        divisor, length = search["divisor"], search["max_time"]
        self.units = [max(int(length / divisor ** (size - 1 - i)), 1) for i in range(size)]
        self.lists: list[list[float]] = [[] for _ in self.units]
        self.divisor, self.trials, self.limit = divisor, trials, limit
        self.created = self.invalid = self.exited = self.running = 0

    def may_create(self) -> bool:
        return self.running < self.limit and self.created - self.invalid < self.trials

    def passes(self, r: int, value: float) -> bool:
        """Insert a result at a rung; say whether its trial goes on."""
        results = self.lists[r]
        place = next((i for i, other in enumerate(results) if other >= value), len(results))
        results.insert(place, value)
        is_last = r == len(self.units) - 1
        return not is_last and place < max(int(len(results) / self.divisor), 1)

    def progress(self) -> float:
        first = len(self.lists[0])
        share = first / (1.2 * self.trials)
        if first >= self.trials:
            share = max(share, (self.exited - self.invalid) / self.trials)
        return min(share, 1.0)


class Reference:
    """`async_halving` and `adaptive_asha`, stopping form."""

    def __init__(self, search: dict[str, Any]) -> None:
        sizes = bracket_sizes(search)
        shares = trials_per_bracket(search, sizes)
        kept = [(size, share) for size, share in zip(sizes, shares, strict=True) if share]
        places = limits(search, [size for size, _ in kept], [share for _, share in kept])
        self.brackets = [
            Bracket(search, size, share, place)
            for (size, share), place in zip(kept, places, strict=True)
        ]
        self.sign = 1 if search["smaller_is_better"] else -1
        self.bracket_of: list[int] = []
        self.rung: list[int] = []
        self.entries: list[list[float]] = []
        self.state: list[str] = []  # running, failing, stopped, errored, canceled, invalid, done
        self.gone: set[int] = set()

    def initial(self) -> list[str]:
        return [word for index in range(len(self.brackets)) for word in self._fill(index)]

    def validated(self, trial: int, loss: float, time: int) -> list[str]:
        if self.state[trial] != "running":
            return []
        if loss != loss:
            self.state[trial] = "failing"
            return [f"fail {trial}"]
        bracket = self.brackets[self.bracket_of[trial]]
        for r in range(self.rung[trial], len(bracket.units)):
            self.rung[trial] = r
            if time < bracket.units[r]:
                return []
            self.entries[trial].append(self.sign * loss)
            if not bracket.passes(r, self.sign * loss):
                self._leave(trial, "stopped")
                return [f"stop {trial}", *self._fill(self.bracket_of[trial])]
        raise AssertionError("the last rung stops every trial")

    def exited_early(self, trial: int, reason: str) -> list[str]:
        bracket, was = self.brackets[self.bracket_of[trial]], self.state[trial]
        if trial in self.gone or was in ("errored", "canceled", "invalid"):
            return []
        self._leave(
            trial, {"errored": "errored", "user_canceled": "canceled"}.get(reason, "invalid")
        )
        if reason == "invalid_hp":
            bracket.invalid += 1
            for r, value in enumerate(self.entries[trial]):
                bracket.lists[r].remove(value)
        elif was in ("running", "failing"):
            bracket.lists[self.rung[trial]].append(WORST)
        return self._fill(self.bracket_of[trial])

    def exited(self, trial: int) -> list[str]:
        if trial in self.gone:
            return []
        self.gone.add(trial)
        self.brackets[self.bracket_of[trial]].exited += 1
        if self.state[trial] == "running":
            self._leave(trial, "done")
        words = self._fill(self.bracket_of[trial])
        if len(self.gone) == len(self.state):
            words.append(self._end())
        return words

    def _end(self) -> str:
        if set(self.state) == {"errored"}:
            return "failure"
        return "cancel" if set(self.state) == {"canceled"} else "shutdown"

    def progress(self) -> float:
        return sum(bracket.progress() for bracket in self.brackets) / len(self.brackets)

    def _leave(self, trial: int, state: str) -> None:
        if self.state[trial] in ("running", "failing"):
            self.brackets[self.bracket_of[trial]].running -= 1
        self.state[trial] = state

    def _fill(self, index: int) -> list[str]:
        bracket, words = self.brackets[index], []
        while bracket.may_create():
            words.append(f"create {len(self.state)}")
            self.bracket_of.append(index)
            self.rung.append(0)
            self.entries.append([])
            self.state.append("running")
            bracket.created += 1
            bracket.running += 1
        return words
