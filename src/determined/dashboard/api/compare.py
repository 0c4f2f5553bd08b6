"""Trials of any experiments side by side, and how they differ."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from determined.config import masked
from determined.dashboard.api.trials import trial_rows
from determined.dashboard.endpoints.answers import (
    MetricName,
    SearcherName,
    TrialJson,
    differing,
    flat,
    metric_names,
    searcher_name,
)
from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.endpoints.parameters import Id, Separated
from determined.dashboard.view import View
from determined.store import Experiment

routes = Routes("compare")

_MOST_TRIALS = 100
# What follows from other settings, or only says where things are kept.
_INTERNAL = ("searcher.smaller_is_better", "searcher.max_concurrent_trials")


class ComparedTrial(TrialJson):
    """A trial with the name of its experiment, and by what that is measured."""

    experiment_name: str
    searcher: SearcherName


class _Owner(TypedDict):
    experiment_name: str
    searcher: SearcherName


class DifferencesJson(TypedDict):
    """Values in the order of the trials, by name; null where a trial has none.

    `config` has only what all of them set: the keys of one searcher say nothing of another.
    """

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
        ComparedTrial(**row, **_owner(owners[row["experiment_id"]]))
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
            "config": {
                name: values
                for name, values in _different(configs).items()
                if name not in _INTERNAL and None not in values
            },
        },
        "metrics": metric_names(names, of_batches),
    }


def _owner(record: Experiment) -> _Owner:
    return {"experiment_name": record.name, "searcher": searcher_name(record)}


def _config(config: dict[str, Any]) -> dict[str, Any]:
    """A flattened configuration, without the parts that have their own table."""
    hidden = ("hyperparameters", "name", "description", "labels")
    return flat({key: value for key, value in masked(config).items() if key not in hidden})


def _different(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = [name for name, differs in differing(rows).items() if differs]
    return {name: [row.get(name) for row in rows] for name in names}
