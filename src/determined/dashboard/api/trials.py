"""Trials: the table of a search, and single trials."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from typing_extensions import TypedDict

from determined.dashboard.api.experiments import column_values
from determined.dashboard.api.logs import traceback_line
from determined.dashboard.endpoints.answers import (
    RunJson,
    SearcherName,
    TrialJson,
    TrialsJson,
    Values,
    flat,
    run_json,
    searcher_name,
    trial_json,
)
from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.endpoints.parameters import (
    ColumnKey,
    Columns,
    Id,
    Limit,
    Offset,
    OneOf,
    Order,
    States,
)
from determined.dashboard.search.positions import positions_of
from determined.dashboard.view import View
from determined.platform.queries.lineage import Relative, lineage_of
from determined.platform.queries.outcome import folder_of, load_lines
from determined.platform.queries.run_environments import environments_of
from determined.platform.runs.folder import RunFolder
from determined.store import CheckpointFilter, Slice, Trial
from determined.store import Order as StoreOrder

routes = Routes("trials")

_SORTS = ("id", "state", "best", "latest", "steps", "progress", "created", "duration", "restarts")
_MOST_POINTS = 10_000


@dataclass(frozen=True)
class TrialFilters:
    """Which trials to show, in which order, with which additional columns."""

    state: States | None = None
    sort: Annotated[str, OneOf(_SORTS)] | ColumnKey = "id"
    order: Order = "asc"
    columns: Columns = ()


@routes.get("/experiments/{id}/trials")
def trials(
    view: View, id: Id, wanted: TrialFilters, limit: Limit = 100, offset: Offset = 0
) -> TrialsJson:
    """The trials of an experiment."""
    view.experiment(id)
    total, rows = trials_page(view, id, wanted, limit, offset)
    return {"total": total, "rows": rows}


def trials_page(
    view: View, experiment_id: int, wanted: TrialFilters, limit: int, offset: int
) -> tuple[int, list[TrialJson]]:
    """The number of matching trials, and a page of them."""
    shown = Slice(wanted.sort, wanted.order == "desc", limit, offset)
    with view.reader.snapshot():
        total, found = view.reader.tables.trials(experiment_id, wanted.state, shown)
        positions = positions_of(view, experiment_id)
        return total, trial_rows(view, found, wanted.columns, positions)


def trial_rows(
    view: View,
    found: Sequence[Trial],
    columns: Sequence[str] = (),
    positions: dict[str, tuple[int, int]] | None = None,
) -> list[TrialJson]:
    """Rows with everything that a table shows."""
    running = {run.trial_id for run in view.reader.unfinished_runs()}
    extra = column_values(view, [trial.id for trial in found], columns) if columns else {}
    now = time.time()
    return [
        trial_json(
            trial,
            is_running=trial.id in running,
            now=now,
            position=(positions or {}).get(trial.request_id),
            columns=extra.get(trial.id),
        )
        for trial in found
    ]


class PointsJson(TypedDict):
    """All trials of a search, column by column."""

    ids: list[int]
    states: list[str]
    values: list[float | None]
    steps: list[int]
    hparams: dict[str, list[Any]]


@routes.get("/experiments/{id}/points")
def points(view: View, id: Id) -> PointsJson:
    """All trials in columns, for charts of the search; at most 10,000."""
    view.experiment(id)
    return points_of(view, id)


def points_of(view: View, experiment_id: int) -> PointsJson:
    """All trials in columns, read once for all charts."""
    return view.while_unchanged(("points", experiment_id), lambda: _points(view, experiment_id))


def _points(view: View, experiment_id: int) -> PointsJson:
    found = view.reader.tables.trial_points(experiment_id, _MOST_POINTS)
    running = {run.trial_id for run in view.reader.unfinished_runs()}
    rows = [flat(point.hparams) for point in found]
    names = dict.fromkeys(itertools.chain.from_iterable(rows))
    states = [
        point.state if point.state != "ACTIVE" else "RUNNING" if point.id in running else "QUEUED"
        for point in found
    ]
    return {
        "ids": [point.id for point in found],
        "states": states,
        "values": [point.best_validation for point in found],
        "steps": [point.total_batches for point in found],
        "hparams": {name: [row.get(name) for row in rows] for name in names},
    }


class MetricJson(TypedDict):
    """A metric of a trial; `batches` says whether there are per-batch values too."""

    group: str
    name: str
    last: Any
    min: float | None
    max: float | None
    count: int | None
    batches: bool


class OwnerJson(TypedDict):
    id: int
    name: str
    state: str
    unmanaged: bool
    searcher: SearcherName


class ErrorJson(TypedDict):
    """The error of a failed trial: the line of its log, if known, and the traceback."""

    trial_id: int
    line: int | None
    text: str


class DecisionJson(TypedDict):
    time: float
    sentence: str


class RelativeJson(TypedDict):
    """The trial on the other side of a fork, and in words how the two are related."""

    trial_id: int
    experiment_id: int
    at: int
    text: str


class LineageJson(TypedDict):
    """The parent of a fork, null for other trials, and the forks of a trial."""

    parent: RelativeJson | None
    forks: list[RelativeJson]


class TrialDetail(TrialJson):
    """A trial with everything that its page shows first."""

    experiment: OwnerJson
    metrics: list[MetricJson]
    run_list: list[RunJson]
    error: ErrorJson | None
    best_checkpoint: str | None
    load: str
    seed: int
    metadata: Values
    decisions: list[DecisionJson]
    lineage: LineageJson


@routes.get("/trials/{id}")
def trial(view: View, id: Id) -> TrialDetail:
    """One trial."""
    record = view.trial(id)
    owner = view.experiment(record.experiment_id)
    (row,) = trial_rows(view, [record], (), positions_of(view, owner.id))
    uuid, load = _best_checkpoint(view, record)
    environments = {one.run_id: one for one in environments_of(view.reader, id)}
    return {
        **row,
        "experiment": {
            "id": owner.id,
            "name": owner.name,
            "state": owner.state,
            "unmanaged": owner.unmanaged,
            "searcher": searcher_name(owner),
        },
        "metrics": metrics_of(view, id),
        "run_list": [run_json(run, environments.get(run.run_id)) for run in view.reader.runs(id)],
        "error": error_of(view, record),
        "best_checkpoint": uuid,
        "load": load,
        "seed": record.seed,
        "metadata": record.metadata,
        "decisions": [
            {"time": moment, "sentence": sentence}
            for moment, sentence in view.reader.tables.decisions_about(
                record.experiment_id, record.request_id
            )
        ],
        "lineage": lineage_json(view, id),
    }


def lineage_json(view: View, trial_id: int) -> LineageJson:
    """Where a trial comes from, and what branches off from it."""
    found = lineage_of(view.reader, trial_id)
    return {
        "parent": None if found.parent is None else _relative(found.parent),
        "forks": [_relative(fork) for fork in found.forks],
    }


def _relative(one: Relative) -> RelativeJson:
    return {
        "trial_id": one.trial_id,
        "experiment_id": one.experiment_id,
        "at": one.at,
        "text": one.text,
    }


def metrics_of(view: View, trial_id: int) -> list[MetricJson]:
    """The metrics of a trial, including those with per-batch values or of its parent only."""
    shared = view.reader.tables.shared_metrics(trial_id)
    of_batches = view.reader.tables.batch_metrics(trial_id)
    found: list[MetricJson] = [
        {
            "group": group,
            "name": name,
            "last": summary.last,
            "min": summary.min,
            "max": summary.max,
            "count": summary.count,
            "batches": (group, name) in of_batches,
        }
        for (group, name), summary in view.reader.tables.summaries(trial_id).items()
    ]
    known = {(metric["group"], metric["name"]) for metric in found}
    for group, name in sorted((of_batches | shared) - known):
        found.append(
            {
                "group": group,
                "name": name,
                "last": None,
                "min": None,
                "max": None,
                "count": None,
                "batches": (group, name) in of_batches,
            }
        )
    return found


def error_of(view: View, record: Trial) -> ErrorJson | None:
    """The traceback of the last failed run, or its last lines of output."""
    for run in reversed(view.reader.runs(record.id)):
        try:
            end = RunFolder(run.folder).exit
        except (OSError, ValueError, KeyError):
            continue
        if end is None or end.exit_code == 0:
            continue
        if end.traceback is not None:
            line = traceback_line(view, record.id, run.run_id)
            return {"trial_id": record.id, "line": line, "text": end.traceback.text}
        text = "\n".join(end.last_lines) or end.message or run.reason
        return {"trial_id": record.id, "line": None, "text": text}
    if record.state != "ERROR":
        return None
    return {"trial_id": record.id, "line": None, "text": record.reason}


def _best_checkpoint(view: View, record: Trial) -> tuple[str | None, str]:
    """The checkpoint of the best validation, if it exists; code that loads it, or else the last."""
    only = CheckpointFilter(trial_id=record.id, states=["COMPLETED"])
    order = StoreOrder("steps_completed", descending=True)
    found = view.reader.checkpoints(only, order, limit=1000).rows
    if not found:
        return None, ""
    best = next((c for c in found if c.steps_completed == record.best_validation_steps), None)
    shown = best or found[0]
    load = load_lines(shown, folder_of(shown, view.experiment(record.experiment_id)))
    return None if best is None else best.uuid, load
