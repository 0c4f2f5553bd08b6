"""Which checkpoints to keep: a pure rule over their metadata, for the store and for storage."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Retention:
    """How many checkpoints to keep: the best of the experiment, the best and newest per trial."""

    experiment_best: int = 0
    trial_best: int = 1
    trial_latest: int = 1


@dataclass(frozen=True)
class Candidate:
    """A whole checkpoint of a trial.

    `value` is the validation at its step, None if there was none; `validated` and `saved` grow in
    the order in which validations were reported and checkpoints were saved. One that is not exact
    was saved after an error.
    """

    uuid: str
    trial_id: int | str | None
    steps_completed: int
    value: float | None
    validated: int = 0
    saved: int = 0
    is_exact: bool = True


def kept(
    candidates: Iterable[Candidate], policy: Retention, smaller_is_better: bool
) -> frozenset[str]:
    """The checkpoints that the policy keeps: the union of its three parts.

    One without a validation can be kept as a newest one only. One that is not exact does not count;
    if newest ones are kept, it is too, until the trial saves another one.
    """
    everything = list(candidates)
    exact = [candidate for candidate in everything if candidate.is_exact]
    trials: dict[object, list[Candidate]] = {}
    for candidate in exact:
        trials.setdefault(candidate.trial_id, []).append(candidate)
    last = {c.trial_id: c for c in sorted(everything, key=lambda c: c.saved)}
    keep = [c for c in last.values() if not c.is_exact and policy.trial_latest]
    keep += _best(exact, policy.experiment_best, smaller_is_better)
    for trial in trials.values():
        keep += _best(trial, policy.trial_best, smaller_is_better)
        newest = sorted(trial, key=lambda c: (c.steps_completed, c.saved), reverse=True)
        keep += newest[: policy.trial_latest]
    return frozenset(candidate.uuid for candidate in keep)


def rank(value: float, earlier: int, smaller_is_better: bool) -> tuple[bool, float, int]:
    """A key that sorts values, the best first: NaN behind every number, of equals the earlier."""
    if math.isnan(value):
        return (True, 0.0, earlier)
    return (False, value if smaller_is_better else -value, earlier)


def _best(candidates: list[Candidate], count: int, smaller_is_better: bool) -> list[Candidate]:
    rated = [
        (rank(c.value, c.validated, smaller_is_better), c)
        for c in candidates
        if c.value is not None
    ]
    return [candidate for _, candidate in sorted(rated, key=lambda pair: pair[0])[:count]]
