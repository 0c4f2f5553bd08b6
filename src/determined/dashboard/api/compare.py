"""Trials of any experiments side by side, and how they differ."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from determined.config import masked
from determined.dashboard.api.trials import trial_rows
from determined.dashboard.endpoints.answers import (
    MetricName,
    TrialJson,
    differing,
    flat,
    metric_names,
)
from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.endpoints.parameters import Id, Separated
from determined.dashboard.view import View

routes = Routes("compare")

_MOST_TRIALS = 100


class ComparedTrial(TrialJson):
    """A trial with the name of its experiment."""

    experiment_name: str


class DifferencesJson(TypedDict):
    """Values in the order of the trials, by name; null where a trial has none."""

    hparams: dict[str, list[Any]]
    metrics: dict[str, list[Any]]
    config: dict[str, list[Any]]


class CompareJson(TypedDict):
    trials: list[ComparedTrial]
    differs: DifferencesJson
    metrics: list[MetricName]


_Trials = Annotated[tuple[Id, ...], Field(min_length=1, max_length=_MOST_TRIALS), Separated()]


@routes.get("/compare")
def compare(view: View, trials: _Trials) -> CompareJson:
    """Trials, the differences between them, and their metrics."""
    records = [view.trial(number) for number in dict.fromkeys(trials)]
    owners = {r.experiment_id: view.experiment(r.experiment_id) for r in records}
    rows = [
        ComparedTrial(**row, experiment_name=owners[row["experiment_id"]].name)
        for row in trial_rows(view, records)
    ]
    metrics = [view.reader.tables.summaries(record.id) for record in records]
    last = [
        {f"{group}.{name}": summary.last for (group, name), summary in found.items()}
        for found in metrics
    ]
    configs = [_config(owners[record.experiment_id].config) for record in records]
    names = {key for found in metrics for key in found}
    of_batches = {key for r in records for key in view.reader.tables.batch_metrics(r.id)}
    return {
        "trials": rows,
        "differs": {
            "hparams": _different([row["hparams"] for row in rows]),
            "metrics": _different(last),
            "config": _different(configs),
        },
        "metrics": metric_names(names, of_batches),
    }


def _config(config: dict[str, Any]) -> dict[str, Any]:
    """A flattened configuration, without the parts that have their own table."""
    hidden = ("hyperparameters", "name", "description", "labels")
    return flat({key: value for key, value in masked(config).items() if key not in hidden})


def _different(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = [name for name, differs in differing(rows).items() if differs]
    return {name: [row.get(name) for row in rows] for name in names}
