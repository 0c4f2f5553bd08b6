"""The table of experiments."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, TypedDict

from determined.dashboard.endpoints.answers import (
    ColumnShape,
    ExperimentShape,
    ExperimentsShape,
    ProjectName,
    Values,
    differing,
    experiment_shape,
    flat,
)
from determined.dashboard.endpoints.endpoints import Parameter, Routes
from determined.dashboard.endpoints.kinds import BadValue, Choice, Flag, Integer, Many, Number, Text
from determined.dashboard.endpoints.parameters import COLUMNS, ID, LIMIT, OFFSET, STATES
from determined.dashboard.view import View
from determined.store import CurveKey, ExperimentRow, Slice, TableFilter

routes = Routes("experiments")

_SORTS = (
    *("id", "name", "state", "progress", "created", "started", "ended", "duration", "trials"),
    *("best", "checkpoint_size", "owner"),
)
FILTERS = {
    "search": Parameter(Text(200), about="In the name, the description or a label; or an id."),
    "state": STATES,
    "label": Parameter(Many(Text(200), 20), [], about="Only with all of these labels."),
    "project": Parameter(ID),
    "workspace": Parameter(ID),
    "archived": Parameter(Flag(), about="Left out: both."),
    "unmanaged": Parameter(Flag(), about="Left out: both."),
    "metric_min": Parameter(Number(), about="The best validation is at least this."),
    "metric_max": Parameter(Number(), about="The best validation is at most this."),
    "sort": Parameter(Choice(_SORTS, ("hparam", "metric")), "id"),
    "order": Parameter(Choice(("asc", "desc")), "desc"),
    "columns": COLUMNS,
}


@routes.get("/experiments", limit=LIMIT, offset=OFFSET, **FILTERS)
def experiments(view: View, limit: int, offset: int, **wanted: Any) -> ExperimentsShape:
    """Matching experiments, and the columns that a table of them can show."""
    if not view.has_store:
        return {"total": 0, "rows": [], "columns": {"available": []}}
    total, rows = rows_of(view, wanted, limit, offset)
    return {"total": total, "rows": rows, "columns": {"available": _available(view, wanted)}}


def filter_of(wanted: dict[str, Any]) -> TableFilter:
    """Build the filter from the parameters of a request."""
    return TableFilter(
        states=wanted["state"],
        archived=wanted["archived"],
        project_id=wanted["project"],
        workspace_id=wanted["workspace"],
        labels=wanted["label"],
        search=wanted["search"],
        unmanaged=wanted["unmanaged"],
        metric_min=wanted["metric_min"],
        metric_max=wanted["metric_max"],
    )


def rows_of(
    view: View, wanted: dict[str, Any], limit: int, offset: int
) -> tuple[int, list[ExperimentShape]]:
    """The number of matching experiments, and a page of them."""
    shown = Slice(wanted["sort"], wanted["order"] == "desc", limit, offset)
    with view.reader.snapshot():
        total, found = view.reader.tables.experiments(filter_of(wanted), shown)
        return total, shapes_of(view, found, wanted["columns"])


def shapes_of(
    view: View, found: Sequence[tuple[ExperimentRow, str | None]], columns: Sequence[str]
) -> list[ExperimentShape]:
    """Rows with everything that a table shows."""
    tables = view.reader.tables
    states = tables.trial_states([row.id for row, _ in found])
    names = project_names(view)
    best = [row.best_trial_id for row, _ in found if row.best_trial_id is not None]
    extra = column_values(view, best, columns)
    now = time.time()
    return [
        experiment_shape(
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


def _available(view: View, wanted: dict[str, Any]) -> list[ColumnShape]:
    """The hyperparameters and metrics of the best trials; those that differ come first."""

    def look() -> list[ColumnShape]:
        tables, fitting = view.reader.tables, filter_of(wanted)
        hparams = differing(map(flat, tables.best_hparams(fitting)))
        found: list[ColumnShape] = [
            {"key": f"hparam:{name}", "label": name, "differs": differs}
            for name, differs in sorted(hparams.items())
        ]
        found += [
            {"key": f"metric:{group}.{name}", "label": f"{group}.{name}", "differs": differs}
            for group, name, differs in tables.best_metrics(fitting)
        ]
        found = [column for column in found if _can_be_asked_for(column["key"])]
        return sorted(found, key=lambda column: not column["differs"])

    return view.while_unchanged(("columns", json.dumps(wanted, sort_keys=True)), look)


def _can_be_asked_for(key: str) -> bool:
    """Whether a column has a name that a request can hold: one that cannot would fail them all."""
    try:
        return bool(COLUMNS.kind.parse(key) == [key])
    except BadValue:
        return False


class SparkShape(TypedDict):
    """A small curve: the searcher's metric of the best trial."""

    metric: str
    y: list[float]


@routes.get(
    "/experiments/sparks",
    ids=Parameter(Many(ID, 200), [], about="Which experiments."),
    px=Parameter(Integer(2, 200), 60),
)
def sparks(view: View, ids: list[int], px: int) -> dict[str, SparkShape]:
    """Small curves for a table, by experiment."""
    found: dict[str, SparkShape] = {}
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
