"""Compare trials: how they differ, and how far each got. Pure except for its queries."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from determined.config import masked_hparams
from determined.store import Experiment, Reader, Trial


@dataclass(frozen=True)
class Compared:
    """One trial: hyperparameters by dotted name, the best value of the metric, and its step."""

    trial: Trial
    hparams: dict[str, Any]
    best: float | None
    best_steps: int | None


@dataclass(frozen=True)
class Comparison:
    """Trials, best first, and the hyperparameters in which they differ."""

    metric: str
    smaller_is_better: bool
    differing: list[str]
    rows: list[Compared]


def compare(
    reader: Reader,
    experiments: Sequence[Experiment],
    trials: Sequence[Trial],
    metric: str | None = None,
    smaller_is_better: bool | None = None,
) -> Comparison:
    """Compare trials by a validation metric, by default the one of the first trial's search."""
    first = experiments[0]
    smaller = first.smaller_is_better if smaller_is_better is None else smaller_is_better
    name = metric or first.searcher_metric or ""
    owners = {experiment.id: experiment for experiment in experiments}
    rows = []
    for trial in trials:
        owner = owners[trial.experiment_id]
        if owner.searcher_metric == name and owner.smaller_is_better == smaller:
            best, steps = trial.best_validation, trial.best_validation_steps
        else:
            best, steps = _best_of(reader, trial, name, smaller)
        hparams = flattened(masked_hparams(trial.hparams))
        rows.append(Compared(trial, hparams, best, steps))
    rows.sort(key=lambda row: _place(row, smaller))
    return Comparison(name, smaller, differing(row.hparams for row in rows), rows)


def differing(hparams: Any) -> list[str]:
    """The names whose values are not the same everywhere, sorted."""
    given: list[Mapping[str, Any]] = list(hparams)
    names = sorted({name for values in given for name in values})
    missing = object()

    def texts(name: str) -> set[str]:
        found = (values.get(name, missing) for values in given)
        return {"" if v is missing else json.dumps(v, sort_keys=True, default=str) for v in found}

    return [name for name in names if len(texts(name)) > 1]


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested hyperparameters with dots in their names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flattened(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _best_of(
    reader: Reader, trial: Trial, metric: str, smaller_is_better: bool
) -> tuple[float | None, int | None]:
    best: tuple[float, int] | None = None
    for report in reader.metrics.reports(trial.id, "validation"):
        value = report.metrics.get(metric)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
            is_better = best is None or (value < best[0] if smaller_is_better else value > best[0])
            best = (float(value), report.steps_completed) if is_better else best
    return best or (None, None)


def _place(row: Compared, smaller_is_better: bool) -> tuple[bool, float, int]:
    if row.best is None or math.isnan(row.best):
        return True, 0.0, row.trial.id
    return False, row.best if smaller_is_better else -row.best, row.trial.id
