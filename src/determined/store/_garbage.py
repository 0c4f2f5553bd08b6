"""Which checkpoints an experiment keeps: a pure function over what is known of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from dataclasses import dataclass


@dataclass(frozen=True)
class Retention:
    """How many checkpoints to keep: the best of the experiment, the best and newest per trial."""

    experiment_best: int = 0
    trial_best: int = 1
    trial_latest: int = 1


@dataclass(frozen=True)
class Candidate:
    """A whole checkpoint; `value` and `validated` come from the validation at its step, if any.

    `validated` grows in the order in which validations were reported.
    """

    uuid: str
    trial_id: int
    steps_completed: int
    value: float | None
    validated: int | None = None


def kept(
    candidates: Iterable[Candidate], policy: Retention, smaller_is_better: bool
) -> frozenset[str]:
    """The checkpoints that the policy keeps: the union of its three parts.

    One without a validation can be kept as a newest one only. NaN ranks behind every number.
    """
    everything = list(candidates)
    trials: dict[int, list[Candidate]] = {}
    for candidate in everything:
        trials.setdefault(candidate.trial_id, []).append(candidate)
    keep = _best(everything, policy.experiment_best, smaller_is_better)
    for trial in trials.values():
        keep |= _best(trial, policy.trial_best, smaller_is_better)
        newest = sorted(trial, key=lambda c: c.steps_completed, reverse=True)
        keep |= {candidate.uuid for candidate in newest[: policy.trial_latest]}
    return frozenset(keep)


def garbage(
    candidates: Iterable[Candidate],
    policy: Retention,
    smaller_is_better: bool,
    protected: Set[str] = frozenset(),
) -> list[Candidate]:
    """What may be deleted: neither kept by the policy nor protected."""
    everything = list(candidates)
    stays = kept(everything, policy, smaller_is_better) | protected
    return [candidate for candidate in everything if candidate.uuid not in stays]


def _best(candidates: list[Candidate], count: int, smaller_is_better: bool) -> set[str]:
    rated = [(c.value, c) for c in candidates if c.value is not None]
    sign = 1 if smaller_is_better else -1
    rated.sort(
        key=lambda pair: (
            math.isnan(pair[0]),
            0.0 if math.isnan(pair[0]) else sign * pair[0],
            pair[1].validated or 0,
        )
    )
    return {candidate.uuid for _, candidate in rated[:count]}
