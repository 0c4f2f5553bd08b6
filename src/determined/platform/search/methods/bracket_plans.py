"""How `adaptive_asha` divides its trials among brackets; arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from determined.platform.search.methods.rung import rung_units
from determined.platform.search.settings import Settings


@dataclass(frozen=True, slots=True)
class BracketPlan:
    """One bracket: its rungs, its share of the trials, and how many of them run at once."""

    units: list[int]
    max_trials: int
    max_concurrent: int


def plan_brackets(settings: Settings) -> list[BracketPlan]:
    """Return the brackets of `adaptive_asha`, or the only one of `async_halving`."""
    s = settings
    if s.name == "async_halving":
        auto = max(1, min(int(s.divisor ** (s.num_rungs - 1)), s.max_trials))
        units = rung_units(s.num_rungs, s.divisor, s.max_time)
        return [BracketPlan(units, s.max_trials, s.max_concurrent_trials or auto)]
    sizes = rung_counts(s)
    shares = trial_shares(s.max_trials, s.divisor, sizes)
    used = [(size, share) for size, share in zip(sizes, shares, strict=True) if share > 0]
    limits = concurrency(s.max_concurrent_trials, s.divisor, [share for _, share in used])
    return [
        BracketPlan(rung_units(size, s.divisor, s.max_time), share, limit)
        for (size, share), limit in zip(used, limits, strict=True)
    ]


def rung_counts(settings: Settings) -> list[int]:
    """Return the number of rungs of each bracket, most rungs first."""
    if settings.bracket_rungs:
        return sorted(settings.bracket_rungs, reverse=True)
    most = min(
        settings.max_rungs,
        _whole_log(settings.max_time, settings.divisor) + 1,
        _whole_log(settings.max_trials, settings.divisor) + 1,
    )
    least = {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}[settings.mode]
    return list(range(most, least - 1, -1))


def _whole_log(number: float, base: float) -> int:
    """Return the largest k with base ** k <= number; logarithms would miss exact powers."""
    k, power = 0, base
    while power <= number * (1 + 1e-9):
        k, power = k + 1, power * base
    return k


def trial_shares(max_trials: int, divisor: float, sizes: Sequence[int]) -> list[int]:
    """Return the number of trials of each bracket: at least one each if there are enough."""
    shares = [max(share, 1) for share in _proportional(max_trials, divisor, sizes)]
    shares[0] += max(max_trials - sum(shares), 0)
    for i in reversed(range(len(shares))):  # more brackets than trials
        shares[i] -= min(max(sum(shares) - max_trials, 0), shares[i])
    return shares


def more_trials(extra: int, divisor: float, sizes: Sequence[int]) -> list[int]:
    """Return each bracket's share of trials that were added later."""
    shares = _proportional(extra, divisor, sizes)
    shares[0] += extra - sum(shares)
    return shares


def _proportional(trials: int, divisor: float, sizes: Sequence[int]) -> list[int]:
    weights = [divisor ** (size - 1) / size for size in sizes]
    return [int(weight / sum(weights) * trials) for weight in weights]


def concurrency(limit: int, divisor: float, shares: Sequence[int]) -> list[int]:
    """Return how many trials each bracket runs at once; 0 chooses a number."""
    if limit == 0:
        return [max(min(shares), int(divisor))] * len(shares)
    each, rest = divmod(max(limit, len(shares)), len(shares))
    return [each + (1 if i < rest else 0) for i in range(len(shares))]
