"""The answers of the API: the types behind the OpenAPI schema, and conversions from records.

Pure. Times are seconds since 1970. Numbers that are not finite are sent as strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from typing_extensions import TypedDict

from determined.config import masked_hparams
from determined.platform.queries.run_environments import RunEnvironment
from determined.store import STOPPED, Experiment, ExperimentRow, Run, Trial, stopped_early

Json = Any
Values = dict[str, Any]

RUNNING, QUEUED = "RUNNING", "QUEUED"


class ProjectName(TypedDict):
    """A project, and where it is."""

    id: int
    name: str
    workspace_id: int
    workspace: str


class SearcherName(TypedDict):
    """An experiment's searcher and its metric."""

    name: str
    metric: str | None
    smaller_is_better: bool


class ExperimentJson(TypedDict):
    """A row of the table of experiments."""

    id: int
    name: str
    description: str
    labels: list[str]
    state: str
    reason: str
    progress: float
    owner: str
    project: ProjectName
    searcher: SearcherName
    best_validation: float | None
    best_trial_id: int | None
    trials: int
    states: dict[str, int]
    created: float
    started: float | None
    ended: float | None
    duration: float | None
    archived: bool
    unmanaged: bool
    checkpoint_count: int
    checkpoint_size: int
    columns: Values


class ColumnJson(TypedDict):
    """A column that a table can show, and whether its rows differ in it."""

    key: str
    label: str
    differs: bool


class ColumnsJson(TypedDict):
    available: list[ColumnJson]


class ExperimentsJson(TypedDict):
    """A page of the table of experiments."""

    total: int
    rows: list[ExperimentJson]
    columns: ColumnsJson


class MetricName(TypedDict):
    """A metric; `batches` says whether some trial has per-batch values too."""

    group: str
    name: str
    batches: bool


def metric_names(
    reported: Iterable[tuple[str, str]], of_batches: Iterable[tuple[str, str]]
) -> list[MetricName]:
    """All metrics that were reported, including per-batch ones."""
    known = set(of_batches)
    return [
        {"group": group, "name": name, "batches": (group, name) in known}
        for group, name in sorted({*reported, *known})
    ]


class TrialJson(TypedDict):
    """A row of a table of trials."""

    id: int
    experiment_id: int
    state: str
    reason: str
    progress: float
    hparams: Values
    best_validation: float | None
    best_steps: int | None
    latest_validation: float | None
    latest_steps: int | None
    steps: int
    restarts: int
    runs: int
    created: float
    started: float | None
    ended: float | None
    duration: float | None
    checkpoint_count: int
    checkpoint_size: int
    rung: int | None
    bracket: int | None
    decision: str
    columns: Values


class TrialsJson(TypedDict):
    """A page of a table of trials."""

    total: int
    rows: list[TrialJson]


class RunJson(TypedDict):
    """One run of a trial."""

    run_id: int
    state: str
    created: float
    started: float | None
    ended: float | None
    steps_completed: int
    exit_code: int | None
    reason: str
    host: str
    slots: list[int]
    from_checkpoint: str | None
    environment: str
    differences: list[str]


def searcher_name(record: Experiment) -> SearcherName:
    """An experiment's searcher and its metric."""
    return {
        "name": str(record.config.get("searcher", {}).get("name", "")),
        "metric": record.searcher_metric,
        "smaller_is_better": record.smaller_is_better,
    }


def shown_state(state: str, is_running: bool) -> str:
    """The displayed state: ACTIVE is replaced by what it means right now."""
    if state != "ACTIVE":
        return state
    return RUNNING if is_running else QUEUED


def trial_state(trial: Trial, is_running: bool) -> str:
    """The displayed state: a trial that the search ended before its time is not COMPLETED."""
    if stopped_early(trial.state, trial.progress, trial.reason):
        return STOPPED
    return shown_state(trial.state, is_running)


def duration(started: float | None, ended: float | None, now: float) -> float | None:
    """How long something took, or has taken so far."""
    return None if started is None else max(0.0, (now if ended is None else ended) - started)


def experiment_json(
    record: ExperimentRow | Experiment,
    *,
    searcher: str,
    project: ProjectName,
    states: dict[str, int],
    now: float,
    columns: Values | None = None,
) -> ExperimentJson:
    """A row of the table of experiments."""
    return {
        "id": record.id,
        "name": record.name,
        "description": record.description,
        "labels": record.labels,
        "state": shown_state(record.state, states.get(RUNNING, 0) > 0),
        "reason": record.reason,
        "progress": record.progress,
        "owner": record.owner,
        "project": project,
        "searcher": {
            "name": searcher,
            "metric": record.searcher_metric,
            "smaller_is_better": record.smaller_is_better,
        },
        "best_validation": record.best_validation,
        "best_trial_id": record.best_trial_id,
        "trials": record.num_trials,
        "states": states,
        "created": record.created,
        "started": record.started,
        "ended": record.ended,
        "duration": duration(record.started, record.ended, now),
        "archived": record.archived,
        "unmanaged": record.unmanaged,
        "checkpoint_count": record.checkpoint_count,
        "checkpoint_size": record.checkpoint_size,
        "columns": columns or {},
    }


def trial_json(
    trial: Trial,
    *,
    is_running: bool,
    now: float,
    position: tuple[int, int] | None = None,
    columns: Values | None = None,
) -> TrialJson:
    """A row of a table of trials; `position` is its bracket and rung."""
    bracket, rung = position or (None, None)
    return {
        "id": trial.id,
        "experiment_id": trial.experiment_id,
        "state": trial_state(trial, is_running),
        "reason": trial.reason,
        "progress": trial.progress,
        "hparams": flat(trial.hparams),
        "best_validation": trial.best_validation,
        "best_steps": trial.best_validation_steps,
        "latest_validation": trial.latest_validation,
        "latest_steps": trial.latest_validation_steps,
        "steps": trial.total_batches,
        "restarts": trial.restarts,
        "runs": trial.run_id,
        "created": trial.created,
        "started": trial.started,
        "ended": trial.ended,
        "duration": duration(trial.started, trial.ended, now),
        "checkpoint_count": trial.checkpoint_count,
        "checkpoint_size": trial.checkpoint_size,
        "rung": rung,
        "bracket": bracket,
        "decision": trial.reason if trial.state != "ERROR" else "",
        "columns": columns or {},
    }


def run_json(run: Run, environment: RunEnvironment | None = None) -> RunJson:
    """A run, with what it computed with if it said so."""
    state = RUNNING if run.ended is None else "ENDED"
    if run.ended is None and run.preempted:
        state = "STOPPING"
    return {
        "run_id": run.run_id,
        "state": state,
        "created": run.created,
        "started": run.started,
        "ended": run.ended,
        "steps_completed": run.steps_completed,
        "exit_code": run.exit_code,
        "reason": run.reason or run.preempted,
        "host": run.host,
        "slots": run.slots,
        "from_checkpoint": run.from_checkpoint,
        "environment": "" if environment is None else environment.text,
        "differences": [] if environment is None else environment.differences,
    }


def flat(values: Mapping[str, Any], prefix: str = "") -> Values:
    """Nested hyperparameters, flattened to dotted names."""
    found: Values = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = _shown(f"{prefix}{name}", value)
    return found


def _shown(name: str, value: Any) -> Any:
    return masked_hparams({name: value})[name] if isinstance(value, (str, list)) else value


def differing(rows: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """All names that occur in the rows, and whether rows differ in them."""
    first: Values = {}
    count: dict[str, int] = {}
    found: dict[str, bool] = {}
    total = 0
    for row in rows:
        total += 1
        for name, value in row.items():
            if name not in found:
                first[name], found[name] = value, False
            elif not found[name] and not same(first[name], value):
                found[name] = True
            count[name] = count.get(name, 0) + 1
    return {name: differs or count[name] < total for name, differs in found.items()}


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal; NaN equals itself, and 1 is not True."""
    return type(left) is type(right) and (left == right or (left != left and right != right))
