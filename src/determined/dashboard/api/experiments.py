"""The table of experiments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from determined.dashboard.endpoints.answers import (
    ColumnJson,
    ExperimentJson,
    ExperimentsJson,
    ProjectName,
    Values,
    differing,
    experiment_json,
    flat,
)
from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.endpoints.parameters import (
    ColumnKey,
    Columns,
    Flag,
    Id,
    Limit,
    Number,
    Offset,
    OneOf,
    Order,
    Separated,
    ShortText,
    States,
)
from determined.dashboard.view import View
from determined.store import CurveKey, ExperimentRow, Slice, TableFilter

routes = Routes("experiments")

_SORTS = (
    *("id", "name", "state", "progress", "created", "started", "ended", "duration", "trials"),
    *("best", "checkpoint_size", "owner"),
)
_Search = Annotated[
    ShortText, Field(description="In the name, the description or a label; or an id.")
]
_Labels = Annotated[
    tuple[ShortText, ...],
    Field(max_length=20),
    Separated(about="Only with all of these labels."),
]
_Both = Annotated[Flag | None, Field(description="Left out: both.")]
_Metric = Annotated[ShortText, Field(description="Only with this metric of the searcher.")]
_AtLeast = Annotated[Number, Field(description="The best validation is at least this.")]
_AtMost = Annotated[Number, Field(description="The best validation is at most this.")]


@dataclass(frozen=True)
class ExperimentFilters:
    """Which experiments to show, in which order, with which additional columns."""

    search: _Search | None = None
    state: States | None = None
    label: _Labels = ()
    project: Id | None = None
    workspace: Id | None = None
    archived: _Both = None
    unmanaged: _Both = None
    metric: _Metric | None = None
    metric_min: _AtLeast | None = None
    metric_max: _AtMost | None = None
    sort: Annotated[str, OneOf(_SORTS)] | ColumnKey = "id"
    order: Order = "desc"
    columns: Columns = ()


@routes.get("/experiments")
def experiments(
    view: View, wanted: ExperimentFilters, limit: Limit = 100, offset: Offset = 0
) -> ExperimentsJson:
    """Matching experiments, and the columns that a table of them can show."""
    if not view.has_store:
        return {"total": 0, "rows": [], "columns": {"available": []}}
    total, rows = experiments_page(view, wanted, limit, offset)
    return {"total": total, "rows": rows, "columns": {"available": _available(view, wanted)}}


def filter_of(wanted: ExperimentFilters) -> TableFilter:
    """Build the filter from the parameters of a request."""
    return TableFilter(
        states=wanted.state,
        archived=wanted.archived,
        project_id=wanted.project,
        workspace_id=wanted.workspace,
        labels=wanted.label,
        search=wanted.search,
        unmanaged=wanted.unmanaged,
        metric=wanted.metric,
        metric_min=wanted.metric_min,
        metric_max=wanted.metric_max,
    )


def experiments_page(
    view: View, wanted: ExperimentFilters, limit: int, offset: int
) -> tuple[int, list[ExperimentJson]]:
    """The number of matching experiments, and a page of them."""
    shown = Slice(wanted.sort, wanted.order == "desc", limit, offset)
    with view.reader.snapshot():
        total, found = view.reader.tables.experiments(filter_of(wanted), shown)
        return total, _rows(view, found, wanted.columns)


def _rows(
    view: View, found: Sequence[tuple[ExperimentRow, str | None]], columns: Sequence[str]
) -> list[ExperimentJson]:
    """Rows with everything that a table shows."""
    tables = view.reader.tables
    states = tables.trial_states([row.id for row, _ in found])
    names = project_names(view)
    best = [row.best_trial_id for row, _ in found if row.best_trial_id is not None]
    extra = column_values(view, best, columns)
    now = time.time()
    return [
        experiment_json(
            row,
            searcher=searcher or "",
            project=names[row.project_id],
            states=states.get(row.id, {}),
            now=now,
            columns=extra.get(row.best_trial_id or 0),
        )
        for row, searcher in found
    ]


def column_values(
    view: View, trial_ids: Sequence[int], columns: Sequence[str]
) -> dict[int, Values]:
    """The values of columns such as `hparam:lr` for some trials."""
    tables = view.reader.tables
    found: dict[int, Values] = {trial_id: {} for trial_id in trial_ids}
    hparams = [key for key in columns if key.startswith("hparam:")]
    if hparams:
        for trial_id, values in tables.hparams_of(trial_ids).items():
            known = flat(values)
            found[trial_id] |= {key: known.get(key[7:]) for key in hparams}
    metrics = {key: metric_of(key) for key in columns if key.startswith("metric:")}
    last = tables.last_metrics(trial_ids, metrics.values())
    for trial_id in trial_ids:
        known_metrics = last.get(trial_id, {})
        found[trial_id] |= {key: known_metrics.get(name) for key, name in metrics.items()}
    return found


def metric_of(key: str) -> tuple[str, str]:
    """The group and name of a column such as `metric:validation.loss`."""
    group, _, name = key.partition(":")[2].partition(".")
    return group, name


def project_names(view: View) -> dict[int, ProjectName]:
    """The names of all projects and their workspaces, by project."""
    workspaces = {workspace.id: workspace.name for workspace in view.reader.registry.workspaces()}
    return {
        p.id: {
            "id": p.id,
            "name": p.name,
            "workspace_id": p.workspace_id,
            "workspace": workspaces[p.workspace_id],
        }
        for p in view.reader.registry.projects()
    }


def _available(view: View, wanted: ExperimentFilters) -> list[ColumnJson]:
    """The hyperparameters and metrics of the best trials; those that differ come first."""

    def read() -> list[ColumnJson]:
        tables, fitting = view.reader.tables, filter_of(wanted)
        hparams = differing(map(flat, tables.best_hparams(fitting)))
        found: list[ColumnJson] = [
            {"key": f"hparam:{name}", "label": name, "differs": differs}
            for name, differs in sorted(hparams.items())
        ]
        found += [
            {"key": f"metric:{group}.{name}", "label": f"{group}.{name}", "differs": differs}
            for group, name, differs in tables.best_metrics(fitting)
        ]
        found = [column for column in found if _can_be_asked_for(column["key"])]
        return sorted(found, key=lambda column: not column["differs"])

    return view.while_unchanged(("columns", repr(wanted)), read)


def _can_be_asked_for(key: str) -> bool:
    """Whether a column has a name that a request can hold: one that cannot would fail them all."""
    try:
        return TypeAdapter(Columns).validate_python(key) == (key,)
    except ValidationError:
        return False


class SparkJson(TypedDict):
    """A small curve: the searcher's metric of the best trial."""

    metric: str
    y: list[float]


_Ids = Annotated[tuple[Id, ...], Field(max_length=200), Separated(about="Which experiments.")]
_SparkPixels = Annotated[int, Field(ge=2, le=200)]


@routes.get("/experiments/sparks")
def sparks(view: View, ids: _Ids = (), px: _SparkPixels = 60) -> dict[str, SparkJson]:
    """Small curves for a table, by experiment."""
    found: dict[str, SparkJson] = {}
    for experiment_id in ids if view.has_store else []:
        record = view.reader.experiment(experiment_id)
        if record is None or record.best_trial_id is None or record.searcher_metric is None:
            continue
        key = CurveKey(record.best_trial_id, "validation", record.searcher_metric)
        (curve,) = view.reader.metrics.curves([key], pixels=px)
        found[str(experiment_id)] = {
            "metric": record.searcher_metric,
            "y": curve.means.tolist(),
        }
    return found
