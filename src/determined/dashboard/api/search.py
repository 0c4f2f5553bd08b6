"""How a search went: rungs, decisions, importance and pairs of hyperparameters."""

from __future__ import annotations

import math
from itertools import compress
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from determined.dashboard.api.experiment import hparam_json, ranges
from determined.dashboard.api.trials import points_of
from determined.dashboard.endpoints.endpoints import ApiError, Routes
from determined.dashboard.endpoints.parameters import NO_NULL, Flag, Id, ShortName
from determined.dashboard.search.contour import Column, ContourJson, contour
from determined.dashboard.search.importance import FEWEST, importance
from determined.dashboard.search.rungs import BracketJson, brackets_of, step_sentence
from determined.dashboard.view import View
from determined.store import Experiment

routes = Routes("search")

_MOST_STEPS = 500


class StepJson(TypedDict):
    """A decision of the search."""

    number: int
    time: float
    trial_id: int | None
    sentence: str


class RungsJson(TypedDict):
    """The rungs of a search; methods without rungs have no brackets."""

    method: str
    metric: str | None
    unit: str
    brackets: list[BracketJson]
    steps: list[StepJson]


@routes.get("/experiments/{id}/rungs")
def rungs(view: View, id: Id) -> RungsJson:
    """Which trials stopped at which rung and why, which continued; and the last decisions."""
    record = view.experiment(id)
    return view.while_unchanged(("rungs", id), lambda: _rungs(view, record))


def _rungs(view: View, record: Experiment) -> RungsJson:
    searcher = view.searches.find(view, record)
    trials = view.reader.tables.trial_ids(record.id)
    reasons = view.reader.tables.trial_reasons(record.id) if searcher is not None else {}
    section = record.config.get("searcher", {})
    unit = str(section.get("time_metric") or "batches")
    return {
        "method": str(section.get("name", "")),
        "metric": record.searcher_metric,
        "unit": unit,
        "brackets": [] if searcher is None else brackets_of(searcher, trials, reasons),
        "steps": [
            {
                "number": number,
                "time": time,
                "trial_id": trials.get(action.get("request_id", "")),
                "sentence": step_sentence(action, trials, unit),
            }
            for number, time, action in view.reader.tables.last_decisions(record.id, _MOST_STEPS)
        ],
    }


class ImportanceJson(TypedDict):
    """The share of each hyperparameter; `note` says why there are none, or how reliable it is."""

    method: str
    metric: str | None
    trials: int
    values: dict[str, float]
    note: str


_Metric = Annotated[
    str,
    Field(
        max_length=300,
        pattern=NO_NULL,
        description="GROUP.NAME, whose last values count; default: the searcher's metric.",
    ),
]
_Smaller = Annotated[
    Flag | None, Field(description="Whether smaller is better; default: as the searcher's metric.")
]


@routes.get("/experiments/{id}/importance")
def importances(
    view: View, id: Id, metric: _Metric | None = None, smaller: _Smaller = None
) -> ImportanceJson:
    """Which hyperparameters matter, by PED-ANOVA."""
    record = view.experiment(id)
    is_smaller_better = record.smaller_is_better if smaller is None else smaller
    return view.while_unchanged(
        ("importance", id, metric, is_smaller_better),
        lambda: _importance(view, record, metric, is_smaller_better),
    )


def _importance(
    view: View, record: Experiment, metric: str | None, smaller_is_better: bool
) -> ImportanceJson:
    columns, values = _results(view, record, metric)
    found = importance(columns, values, smaller_is_better)
    note = ""
    if len(values) < FEWEST:
        note = f"It needs {FEWEST} trials with a result; there are {len(values)}."
    elif not found:
        note = "The trials do not differ in any hyperparameter."
    elif len(values) < 20:
        note = f"Based on only {len(values)} trials: take it as a hint."
    shown = metric or record.searcher_metric
    return {
        "method": "PED-ANOVA",
        "metric": shown,
        "trials": len(values),
        "values": found,
        "note": note,
    }


def _results(
    view: View, record: Experiment, metric: str | None
) -> tuple[dict[str, list[Any]], list[float]]:
    """The hyperparameters in columns and the results of all trials that have a finite one."""
    points = points_of(view, record.id)
    results: list[Any] = list(points["values"])
    if metric:
        group, _, name = metric.partition(".")
        known = view.reader.tables.last_values(record.id, group, name)
        results = [known.get(trial_id) for trial_id in points["ids"]]
    fits = [_is_number(value) for value in results]
    columns = {name: list(compress(column, fits)) for name, column in points["hparams"].items()}
    return columns, [float(value) for value in compress(results, fits)]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


_Bins = Annotated[int, Field(ge=2, le=100)]


@routes.get("/experiments/{id}/contour")
def contours(view: View, id: Id, x: ShortName, y: ShortName, bins: _Bins = 24) -> ContourJson:
    """The best results over two hyperparameters."""
    record = view.experiment(id)
    columns, values = _results(view, record, None)
    for name in (x, y):
        if columns and name not in columns:
            raise ApiError(404, f"No trial of experiment {id} has a hyperparameter {name[:60]!r}.")
    configured = ranges(record.config.get("hyperparameters") or {})
    x_column, y_column = (
        Column(columns.get(name, []), hparam_json(name, configured.get(name), True)["type"])
        for name in (x, y)
    )
    return contour(x_column, y_column, values if columns else [], bins, record.smaller_is_better)
