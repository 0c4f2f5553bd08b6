"""The table of all trials, of one project or of all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema
from typing_extensions import TypedDict

from determined.dashboard.api.trials import trial_rows
from determined.dashboard.endpoints.answers import (
    ColumnJson,
    ColumnsJson,
    SearcherName,
    TrialJson,
    differing,
    flat,
)
from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.endpoints.parameters import (
    ColumnKey,
    Columns,
    Flag,
    Id,
    Limit,
    Offset,
    OneOf,
    Order,
    Separated,
    ShortText,
    States,
    expected,
)
from determined.dashboard.view import View
from determined.store import Condition, Slice, TableFilter, TrialTableFilter

routes = Routes("trials")

_SORTS = (
    *("id", "experiment", "state", "best", "latest", "steps", "created", "duration", "restarts"),
)
_MOST_READ = 5000
_WORDS = {"true": 1.0, "false": 0.0}
_CONDITION = r"^([^<>=;\x00]{1,200}?)\s*(<=|>=|<|>|=)\s*([^<>=;\x00]{1,200})$"


def _condition(text: Any) -> Condition:
    found = re.match(_CONDITION, text) if isinstance(text, str) else None
    if found is None:
        raise expected("a condition such as `lr<0.01` or `optimizer=adam`")
    value = found[3].strip()
    operator: Any = found[2]
    try:
        return Condition(
            found[1].strip(), operator, _WORDS[value] if value in _WORDS else float(value)
        )
    except ValueError:
        return Condition(found[1].strip(), operator, value)


_Condition = Annotated[
    Condition,
    PlainValidator(_condition),
    WithJsonSchema({"type": "string", "pattern": _CONDITION}),
]
_Conditions = Annotated[
    tuple[_Condition, ...],
    Field(max_length=20),
    Separated(";", about="What hyperparameters must be: `lr<0.01`, `optimizer=adam`."),
]
_Search = Annotated[
    ShortText,
    Field(description="In the name, the description or a label of the experiment; or its id."),
]


@dataclass(frozen=True)
class AllTrialsFilters:
    """Which trials of which experiments to show, in which order, with which metrics."""

    project: Id | None = None
    search: _Search | None = None
    metric: ShortText | None = None
    archived: Flag | None = None
    state: States | None = None
    hparams: _Conditions = ()
    sort: Annotated[str, OneOf(_SORTS)] | ColumnKey = "id"
    order: Order = "desc"
    columns: Columns = ()


class OwnedTrial(TrialJson):
    """A trial, and the experiment that it belongs to."""

    experiment_name: str
    searcher: SearcherName


class AllTrialsJson(TypedDict):
    """A page of the table of all trials, and the columns that it can show."""

    total: int
    rows: list[OwnedTrial]
    columns: ColumnsJson


@routes.get("/trials")
def all_trials(
    view: View, wanted: AllTrialsFilters, limit: Limit = 100, offset: Offset = 0
) -> AllTrialsJson:
    """Trials of all experiments, or of a project's, and the columns that a table can show."""
    if not view.has_store:
        return {"total": 0, "rows": [], "columns": {"available": []}}
    total, rows = all_trials_page(view, wanted, limit, offset)
    return {"total": total, "rows": rows, "columns": {"available": _available(view, wanted)}}


def all_trials_page(
    view: View, wanted: AllTrialsFilters, limit: int, offset: int
) -> tuple[int, list[OwnedTrial]]:
    """The number of matching trials, and a page of them."""
    shown = Slice(wanted.sort, wanted.order == "desc", limit, offset)
    with view.reader.snapshot():
        tables = view.reader.tables
        total, found = tables.all_trials(_filter_of(wanted), shown)
        ids = sorted({trial.experiment_id for trial in found})
        _, owners = tables.experiments(TableFilter(ids=ids), Slice(limit=len(ids)))
        by_id = {owner.id: (owner, searcher) for owner, searcher in owners}
        rows = []
        for row in trial_rows(view, found, wanted.columns):
            owner, searcher = by_id[row["experiment_id"]]
            names: SearcherName = {
                "name": searcher or "",
                "metric": owner.searcher_metric,
                "smaller_is_better": owner.smaller_is_better,
            }
            rows.append(OwnedTrial(**row, experiment_name=owner.name, searcher=names))
        return total, rows


def _filter_of(wanted: AllTrialsFilters) -> TrialTableFilter:
    owners = TableFilter(
        project_id=wanted.project,
        search=wanted.search,
        metric=wanted.metric,
        archived=wanted.archived,
    )
    return TrialTableFilter(owners, wanted.state, wanted.hparams)


def _available(view: View, wanted: AllTrialsFilters) -> list[ColumnJson]:
    """The hyperparameters of these trials; those that differ come first."""

    def read() -> list[ColumnJson]:
        rows = view.reader.tables.all_hparams(_filter_of(wanted), _MOST_READ)
        found = differing(map(flat, rows)).items()
        return [
            {"key": f"hparam:{name}", "label": name, "differs": differs}
            for name, differs in sorted(found, key=lambda one: (not one[1], one[0]))
        ]

    return view.while_unchanged(("trial columns", repr(wanted)), read)
