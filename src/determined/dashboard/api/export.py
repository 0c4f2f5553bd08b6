"""Tables as CSV, with the filters of the page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.responses import Response

from determined.dashboard.api.all_trials import AllTrialsFilters, all_trials_page
from determined.dashboard.api.experiments import ExperimentFilters, experiments_page
from determined.dashboard.api.trials import TrialFilters, trials_page
from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.endpoints.parameters import Id
from determined.dashboard.view import View
from determined.platform.trackers.export import cell

routes = Routes("export")

_MOST_ROWS = 100_000


@routes.get("/export/experiments.csv", "text/csv")
def experiments(view: View, wanted: ExperimentFilters) -> Response:
    """The table of experiments."""
    rows: list[dict[str, Any]] = []
    if view.has_store:
        _, found = experiments_page(view, wanted, _MOST_ROWS, 0)
        rows = [dict(row) for row in found]
    for row in rows:
        row["project"] = f"{row['project']['workspace']}/{row['project']['name']}"
        row["metric"] = row["searcher"]["metric"]
        row["searcher"] = row["searcher"]["name"]
        row["labels"] = ", ".join(row["labels"])
        del row["states"]
    return _csv("experiments", [_spread(row) for row in rows])


@routes.get("/export/trials.csv", "text/csv")
def trials(view: View, experiment: Id, wanted: TrialFilters) -> Response:
    """The table of trials of an experiment, with their hyperparameters."""
    view.experiment(experiment)
    _, found = trials_page(view, experiment, wanted, _MOST_ROWS, 0)
    rows = []
    for row in found:
        content = dict(row)
        hparams = content.pop("hparams")
        content |= {f"hparam:{name}": value for name, value in hparams.items()}  # type: ignore[attr-defined]
        rows.append(_spread(content))
    return _csv(f"experiment-{experiment}-trials", rows)


@routes.get("/export/all-trials.csv", "text/csv")
def all_trials(view: View, wanted: AllTrialsFilters) -> Response:
    """The table of all trials, with their hyperparameters."""
    rows: list[dict[str, Any]] = []
    if view.has_store:
        _, found = all_trials_page(view, wanted, _MOST_ROWS, 0)
        rows = [dict(row) for row in found]
    for row in rows:
        row["metric"] = row.pop("searcher")["metric"]
        row |= {f"hparam:{name}": value for name, value in row.pop("hparams").items()}
    return _csv("trials", [_spread(row) for row in rows])


def _spread(row: dict[str, Any]) -> dict[str, Any]:
    """A row with each of the extra columns of the request as a separate column."""
    extra: Mapping[str, Any] = row.pop("columns")
    return row | dict(extra)


def _csv(name: str, rows: Iterable[dict[str, Any]]) -> Response:
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([cell(name) for name in names])
    writer.writerows([cell(row.get(name)) for name in names] for row in rows)
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    content = text.getvalue().encode("utf-8", "replace")
    return Response(content, media_type="text/csv; charset=utf-8", headers=headers)
