"""Trials that differ in nothing but their seeds: one configuration, one row.

`significance.py` has the statistics; here are the groups that `repeat` makes, and all pairs of
them compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from determined.platform.queries.comparison import Compared, Comparison, differing
from determined.platform.queries.seeds.significance import (
    CONFIDENCE,
    Verdict,
    compare_seeds,
    spread_of,
)
from determined.store import Experiment


@dataclass(frozen=True)
class Repeated:
    """One configuration of an experiment and its trials, each with another seed.

    Attributes:
        experiment_id: whose configuration it is.
        hparams: its hyperparameters by dotted name.
        rows: its trials, best first.
        results: the best value of every trial that has completed with a finite one, by seed.
    """

    experiment_id: int
    hparams: dict[str, Any]
    rows: list[Compared]
    results: dict[int, float]

    @property
    def mean(self) -> float | None:
        values = self.results.values()
        return math.fsum(values) / len(values) if values else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds."""
        return spread_of(list(self.results.values()))

    @property
    def trial_ids(self) -> list[int]:
        return sorted(row.trial.id for row in self.rows)


@dataclass(frozen=True)
class Judged:
    """Two configurations and what can be said about their difference."""

    a: Repeated
    b: Repeated
    verdict: Verdict


@dataclass(frozen=True)
class Judgement:
    """All configurations, what they are called, and the first one against each of the others.

    Attributes:
        groups: two in the order in which their experiments were given; more, the best mean first.
        names: what the sentences call them.
        judged: the first one with each of the others.
        notes: sentences about trials that were left out.
    """

    groups: list[Repeated]
    names: list[str]
    judged: list[Judged]
    notes: list[str]


def is_repeated(experiment: Experiment) -> bool:
    """Whether an experiment trains each configuration with several seeds."""
    return bool((experiment.config.get("repeat") or 1) > 1)


def repeated(seen: Comparison) -> list[Repeated]:
    """Group compared trials by experiment and hyperparameters; the best mean comes first."""
    groups: dict[tuple[int, str], list[Compared]] = {}
    for row in seen.rows:
        text = json.dumps(row.hparams, sort_keys=True, default=str)
        groups.setdefault((row.trial.experiment_id, text), []).append(row)
    found = [
        Repeated(number, rows[0].hparams, rows, _results(rows))
        for (number, _), rows in groups.items()
    ]
    sign = 1 if seen.smaller_is_better else -1

    def place(group: Repeated) -> tuple[bool, float, int]:
        mean = group.mean
        return mean is None, 0.0 if mean is None else sign * mean, group.trial_ids[0]

    return sorted(found, key=place)


def judge_all(seen: Comparison, experiment_ids: Sequence[int]) -> Judgement:
    """Judge all configurations of a comparison; raises ValueError if there are less than two."""
    groups = repeated(seen)
    if len(groups) < 2:
        found = "One configuration was" if groups else "No trial was"
        raise ValueError(
            f"{found} found; there is nothing to compare: give another experiment, or one with a "
            "grid."
        )
    if len(groups) == 2:  # the first that was given is A
        groups.sort(key=lambda group: experiment_ids.index(group.experiment_id))
    names = group_names(groups)
    judged = judge(groups, names, seen.smaller_is_better)
    return Judgement(groups, names, judged, left_out(groups, names))


def group_json(group: Repeated, metric: str) -> dict[str, Any]:
    """A configuration as data."""
    return {
        "experiment_id": group.experiment_id,
        "hparams": group.hparams,
        "metric": metric,
        "trial_ids": group.trial_ids,
        "results": {str(seed): value for seed, value in group.results.items()},
        "seeds": len(group.results),
        "trials": len(group.rows),
        "mean": group.mean,
        "spread": group.spread,
    }


def judgement_json(seen: Comparison, found: Judgement) -> dict[str, Any]:
    """All of it as data; `a` and `b` are positions in `configurations`."""
    position = {id(group): i for i, group in enumerate(found.groups)}
    return {
        "metric": seen.metric,
        "smaller_is_better": seen.smaller_is_better,
        "configurations": [
            group_json(group, seen.metric) | {"name": name}
            for group, name in zip(found.groups, found.names, strict=True)
        ],
        "comparisons": [
            {"a": position[id(one.a)], "b": position[id(one.b)], **asdict(one.verdict)}
            for one in found.judged
        ],
        "notes": found.notes,
    }


def judge(
    groups: Sequence[Repeated],
    names: Sequence[str],
    smaller_is_better: bool,
    confidence: float = CONFIDENCE,
) -> list[Judged]:
    """Compare the first of two configurations with the other, or the best one with all others.

    The best of several is chosen by the same results that judge it, so the error is shared among
    all pairs that could have been compared.
    """
    pairs = len(groups) * (len(groups) - 1) // 2
    return [
        Judged(
            groups[0],
            other,
            compare_seeds(
                groups[0].results,
                other.results,
                smaller_is_better=smaller_is_better,
                names=(names[0], name),
                confidence=confidence,
                comparisons=pairs,
            ),
        )
        for other, name in zip(groups[1:], names[1:], strict=True)
    ]


def group_names(groups: Sequence[Repeated]) -> list[str]:
    """What to call each: the experiment, and the values that tell it from others of the same."""
    names = []
    for group in groups:
        same = [other for other in groups if other.experiment_id == group.experiment_id]
        own = differing(other.hparams for other in same)
        values = ", ".join(f"{name}={group.hparams.get(name)}" for name in own)
        number = f"experiment {group.experiment_id}"
        names.append(f"{number} ({values})" if values else number)
    return names


def left_out(groups: Sequence[Repeated], names: Sequence[str]) -> list[str]:
    """Sentences about trials without a result: leaving out those that diverged flatters."""
    lines = []
    for group, name in zip(groups, names, strict=True):
        missing = len(group.rows) - len(group.results)
        if missing:
            lines.append(
                f"{missing} of {len(group.rows)} trials of {name} have not completed with a finite "
                "value, and are left out."
            )
    return lines


def _results(rows: Sequence[Compared]) -> dict[int, float]:
    """The first trial of a seed counts, if there are several."""
    found: dict[int, float] = {}
    for row in sorted(rows, key=lambda row: row.trial.id):
        if row.trial.state == "COMPLETED" and row.best is not None and math.isfinite(row.best):
            found.setdefault(row.trial.seed, row.best)
    return found
