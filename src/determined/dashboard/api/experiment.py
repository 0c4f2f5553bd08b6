"""One experiment: its description, its results and its events."""

from __future__ import annotations

import time
from typing import Any

from typing_extensions import TypedDict

from determined.config import masked, to_yaml
from determined.dashboard.api.experiments import project_names
from determined.dashboard.api.trials import ErrorJson, error_of, points_of
from determined.dashboard.endpoints.answers import (
    ExperimentJson,
    MetricName,
    Values,
    experiment_json,
    flat,
    metric_names,
    same,
)
from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.endpoints.parameters import Id
from determined.dashboard.view import View
from determined.platform.queries.outcome import Outcome, outcome
from determined.store import Experiment, Order, TrialFilter

routes = Routes("experiments")

_SECRET_ENVIRONMENT = ("calls", "searched_with")
_MOST_EVENTS = 200
_RANGES = ("const", "categorical", "int", "double", "log", "log_int")


class BestJson(TypedDict):
    """The best trial, and the line that loads it."""

    trial_id: int
    hparams: Values
    metric: str | None
    value: float | None
    steps: int | None
    checkpoint_uuid: str | None
    load: str


class EventJson(TypedDict):
    time: float
    level: str
    kind: str
    text: str
    trial_id: int | None


class HparamJson(TypedDict):
    """A hyperparameter as configured; `differs` says whether trials differ in it."""

    name: str
    type: str
    values: list[Any] | None
    minval: float | None
    maxval: float | None
    base: float | None
    differs: bool


class ExperimentDetail(ExperimentJson):
    """An experiment with everything that its page shows first."""

    notes: str
    parent_id: int | None
    config: Values
    config_yaml: str
    environment: Values
    best: BestJson | None
    error: ErrorJson | None
    slot_seconds: float
    events: list[EventJson]
    metrics: list[MetricName]
    hparams: list[HparamJson]


@routes.get("/experiments/{id}")
def experiment(view: View, id: Id) -> ExperimentDetail:
    """One experiment."""
    record = view.experiment(id)
    config = masked(record.config)
    return {
        **experiment_row(view, record),
        "notes": record.notes,
        "parent_id": record.parent_id,
        "config": config,
        "config_yaml": to_yaml(config),
        "environment": {
            name: value
            for name, value in record.environment.items()
            if name not in _SECRET_ENVIRONMENT
        },
        "best": best_json(record, outcome(view.reader, record)),
        "error": _error(view, record),
        "slot_seconds": view.reader.tables.slot_seconds(id, time.time()),
        "events": events_of(view, id),
        "metrics": view.while_unchanged(("metrics", id), lambda: _metrics(view, id)),
        "hparams": hparams_of(view, record),
    }


def _error(view: View, record: Experiment) -> ErrorJson | None:
    """Why a failed experiment failed: the error of the trial that failed last."""
    if record.state != "ERROR":
        return None
    failed = TrialFilter(experiment_id=record.id, states=["ERROR"])
    last = view.reader.trials(failed, Order("ended", descending=True), limit=1).rows
    return error_of(view, last[0]) if last else None


def _metrics(view: View, experiment_id: int) -> list[MetricName]:
    reported = view.reader.metrics.names(experiment_id)
    return metric_names(reported, view.reader.tables.batch_metrics_of_experiment(experiment_id))


def experiment_row(view: View, record: Experiment) -> ExperimentJson:
    """The row of one experiment."""
    states = view.reader.tables.trial_states([record.id])
    return experiment_json(
        record,
        searcher=str(record.config.get("searcher", {}).get("name", "")),
        project=project_names(view)[record.project_id],
        states=states.get(record.id, {}),
        now=time.time(),
    )


def best_json(record: Experiment, found: Outcome) -> BestJson | None:
    """The best trial, None if none has validated."""
    trial = found.best_trial
    if trial is None:
        return None
    return {
        "trial_id": trial.id,
        "hparams": flat(trial.hparams),
        "metric": record.searcher_metric,
        "value": trial.best_validation,
        "steps": trial.best_validation_steps,
        "checkpoint_uuid": found.checkpoint.uuid if found.checkpoint else None,
        "load": "\n".join(found.python),
    }


def events_of(view: View, experiment_id: int) -> list[EventJson]:
    """The last events, newest first."""
    return [
        {
            "time": event.time,
            "level": event.level,
            "kind": event.kind,
            "text": event.text,
            "trial_id": event.trial_id,
        }
        for event in view.reader.tables.last_events(experiment_id, _MOST_EVENTS)
    ]


def hparams_of(view: View, record: Experiment) -> list[HparamJson]:
    """The hyperparameters of a search, and whether its trials differ in them."""
    configured = ranges(record.config.get("hyperparameters") or {})
    points = points_of(view, record.id)
    known = {name: _differs(column) for name, column in points["hparams"].items()}
    found = [hparam_json(name, value, known.get(name, False)) for name, value in configured.items()]
    others = [name for name in known if name not in configured]
    return found + [hparam_json(name, None, known[name]) for name in others]


def _differs(column: list[Any]) -> bool:
    return any(not same(column[0], value) for value in column)


def ranges(section: dict[str, Any], prefix: str = "") -> Values:
    """The hyperparameters of a configuration, flattened: constants and ranges."""
    found: Values = {}
    for name, value in section.items():
        is_group = isinstance(value, dict) and value.get("type") not in _RANGES
        if is_group and value:
            found |= ranges(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def hparam_json(name: str, value: Any, differs: bool) -> HparamJson:
    """One hyperparameter."""
    is_range = isinstance(value, dict) and value.get("type") in _RANGES
    kind = str(value["type"]) if is_range else "const"
    values: list[Any] | None = None
    if kind == "const":
        values = [value.get("val") if is_range else value]
    elif kind == "categorical":
        values = list(value.get("vals", []))
    get = value.get if is_range else {}.get
    return {
        "name": name,
        "type": kind,
        "values": values,
        "minval": get("minval"),
        "maxval": get("maxval"),
        "base": get("base"),
        "differs": differs,
    }
