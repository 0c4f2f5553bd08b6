"""Lists: experiments, the trials of one, its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from determined.cli._commands.options import (
    COUNT,
    EXPERIMENT_ID,
    TEXT,
    most_rows,
    order_options,
    page_of,
    paging_options,
    utc_option,
)
from determined.cli._commands.platform import platform
from determined.cli._present.layout import number_text
from determined.cli._present.records import record_json, show_checkpoints
from determined.cli._present.tables import (
    Output,
    duration_text,
    hparams_text,
    output_options,
    percent,
    show,
    time_text,
)
from determined.cli.experiment.noun import experiment

if TYPE_CHECKING:
    from determined.platform.service import Service
    from determined.store import Experiment, ExperimentFilter, Order, RatedCheckpoint, Trial

_POOL = "default"
_STATES = (
    *("ACTIVE", "PAUSED", "STOPPING_COMPLETED", "STOPPING_CANCELED", "STOPPING_KILLED"),
    *("STOPPING_ERROR", "COMPLETED", "CANCELED", "ERROR", "DELETING", "DELETE_FAILED"),
    *("RUNNING", "QUEUED"),
)
_SPARE = (  # what a narrow terminal does without, the least useful first
    *("Resource Pool", "Ended", "Owner", "Parent ID", "Archived", "Workspace", "Progress"),
    *("Project", "Started"),
)
ORDERS = (
    *("id", "name", "description", "state", "progress", "owner", "started", "ended"),
    *("num_trials", "checkpoint_count", "checkpoint_size", "best_validation"),
)


@experiment.verb("list", aliases=["ls"])
@click.option(
    "-a",
    "--all",
    "show_all",
    is_flag=True,
    help="Include archived experiments and those of other users.",
)
@click.option("--show_project", "--show-project", is_flag=True, help="Show workspace and project.")
@click.option("--name", type=TEXT, help="Only experiments whose name contains this text.")
@click.option(
    "--label", "labels", multiple=True, type=TEXT, help="Only experiments with this label."
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only experiments in this state; RUNNING and QUEUED stand for ACTIVE.",
)
@order_options(ORDERS, default="id")
@paging_options(200)
@utc_option
@output_options
def list_experiments(
    show_all: bool,
    show_project: bool,
    name: str | None,
    labels: tuple[str, ...],
    states: tuple[str, ...],
    sort_by: str,
    order_by: str,
    limit: int,
    offset: int,
    pages: str,
    utc: bool,
    output: Output,
) -> None:
    """List experiments, newest first."""
    from determined.store import ExperimentFilter, Order

    wanted = ExperimentFilter(
        archived=None if show_all else False,
        owner=None if show_all else _user(),
        labels=labels,
        name_contains=name,
        states=["ACTIVE" if s in ("RUNNING", "QUEUED") else s for s in states] or None,
    )
    order = Order(sort_by, descending=order_by == "desc")
    show_experiments(wanted, order, (limit, offset, pages), output, utc, show_all, show_project)


def show_experiments(
    wanted: ExperimentFilter,
    order: Order,
    paging: tuple[int, int, str],
    output: Output,
    utc: bool,
    show_all: bool,
    show_project: bool = False,
) -> None:
    """Print a table of experiments; `paging` is limit, offset and pages."""
    limit, offset, pages = paging
    with platform() as service:
        if not service.has_store:
            _show_none(output)
            return
        found = service.reader.experiments(wanted, order, most_rows(limit, offset, pages)).rows
        chosen = page_of(found, limit, offset, pages)
        if not found:
            is_empty = not service.reader.experiments(limit=1).rows
            is_filtered = bool(wanted.name_contains or wanted.labels or wanted.states)
            _show_none(output, is_empty=is_empty, is_filtered=is_filtered)
            return
        running = service.running_experiments()
        projects = service.projects() if show_project else {}
    headers = ["ID", "Owner", "Name", "Parent ID", "State", "Progress", "Started", "Ended"]
    headers += ["Resource Pool"]
    rows = [_experiment_row(e, e.id in running, utc) for e in chosen]
    if output == "table":  # CSV has the columns that programs know
        headers[5:5] = ["Best", "Duration"]
        now = time.time()
        for record, row in zip(chosen, rows, strict=True):
            row[5:5] = [best_text(record), experiment_duration(record, now)]
    if show_project:
        headers = ["Workspace", "Project", *headers]
        rows = [
            [*projects.get(e.project_id, ("", "")), *row]
            for e, row in zip(chosen, rows, strict=True)
        ]
    if show_all:
        headers = [*headers, "Archived"]
        rows = [[*row, e.archived] for e, row in zip(chosen, rows, strict=True)]
    show(headers, rows, output, [experiment_json(e) for e in chosen], spare=_SPARE)


def _show_none(output: Output, *, is_empty: bool = True, is_filtered: bool = False) -> None:
    if output == "json":
        show([], [], output, [])
    elif output == "table" and is_empty:
        click.echo("There are no experiments yet: `det experiment create CONFIG DIR` creates one.")
    elif output == "table" and is_filtered:
        click.echo("None of your experiments match; --all includes archived ones.")
    elif output == "table":
        click.echo(
            "There are only archived experiments and those of other users: --all shows them."
        )


def _user() -> str:
    import getpass

    return getpass.getuser()


def _experiment_row(record: Experiment, is_running: bool, utc: bool) -> list[object]:
    return [
        record.id,
        record.owner,
        record.name,
        record.parent_id,
        shown_state(record.state, is_running),
        percent(record.progress),
        time_text(record.started or record.created, utc=utc),
        time_text(record.ended, utc=utc),
        pool_of(record),
    ]


def best_text(record: Experiment) -> str:
    """The best value with the name of its metric, as each experiment may have another."""
    if record.best_validation is None:
        return ""
    return f"{record.searcher_metric} {number_text(record.best_validation)}"


def experiment_duration(record: Experiment, now: float) -> str:
    """How long an experiment has taken."""
    return duration_text(record.started or record.created, record.ended, now)


def pool_of(record: Experiment) -> str:
    """Where an experiment runs; scripts that were started manually are in no pool."""
    return "unmanaged" if record.unmanaged else _POOL


def shown_state(state: str, is_running: bool) -> str:
    """The state with what ACTIVE means at this moment."""
    if state != "ACTIVE":
        return state
    return "RUNNING" if is_running else "QUEUED"


def experiment_json(record: Experiment) -> dict[str, Any]:
    """An experiment as data, without the configuration (`det experiment config` has it)."""
    hidden = ("config", "original_config", "environment", "gc_is_due")
    return record_json(record, hidden)


@experiment.verb("list-trials", aliases=["lt"])
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@paging_options(200)
@utc_option
@output_options
def list_trials(
    experiment_id: int, limit: int, offset: int, pages: str, utc: bool, output: Output
) -> None:
    """List the trials of an experiment."""
    from determined.store import TrialFilter

    with platform() as service:
        record = service.experiment(experiment_id)
        only = TrialFilter(experiment_id=experiment_id)
        found = service.reader.trials(only, limit=most_rows(limit, offset, pages)).rows
        trials = page_of(found, limit, offset, pages)
        running = {run.trial_id for run in service.reader.unfinished_runs()}
    if output == "table":
        show_trials(record, trials, running, utc)
        return
    headers = ["Trial ID", "State", "H-Params", "Started", "Ended", "# of Batches"]
    rows = [
        [
            trial.id,
            shown_state(trial.state, trial.id in running),
            hparams_text(trial.hparams),
            time_text(trial.started, utc=utc),
            time_text(trial.ended, utc=utc),
            trial.total_batches,
        ]
        for trial in trials
    ]
    show(headers, rows, output, [trial_json(trial) for trial in trials])


def show_trials(record: Experiment, trials: Sequence[Trial], running: set[int], utc: bool) -> None:
    """Print a table of trials for people: results, and the hyperparameters in which they differ."""
    from determined.cli.experiment.repeats import cell
    from determined.config import masked_hparams
    from determined.platform.queries.comparison import differing, flattened

    hparams = {trial.id: flattened(masked_hparams(trial.hparams)) for trial in trials}
    names = differing(hparams.values())
    if len(trials) == 1:
        names = sorted(hparams[trials[0].id])
    now = time.time()
    rows = [
        [
            trial.id,
            shown_state(trial.state, trial.id in running),
            trial.best_validation,
            duration_text(trial.started, trial.ended, now),
            *(cell(values[name]) if name in values else None for name in names),
            trial.total_batches,
            time_text(trial.started, utc=utc),
            time_text(trial.ended, utc=utc),
        ]
        for trial, values in zip(trials, hparams.values(), strict=True)
    ]
    best = f"Best {record.searcher_metric or ''}".rstrip()
    headers = ["Trial ID", "State", best, "Duration", *names, "# of Batches", "Started", "Ended"]
    show(headers, rows, spare=("Ended", "Started", "# of Batches", *reversed(names)))


def trial_json(trial: Trial) -> dict[str, Any]:
    """A trial as data; secrets are masked."""
    from determined.config import masked_hparams

    content = record_json(trial, ("not_before", "is_held"))
    return content | {"hparams": masked_hparams(trial.hparams)}


@experiment.verb("list-checkpoints", aliases=["lc"])
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.option("--best", type=COUNT, metavar="N", help="Only the N best by the searcher's metric.")
@output_options
def list_checkpoints(experiment_id: int, best: int | None, output: Output) -> None:
    """List the checkpoints of an experiment in the order of their reports, or the best ones."""
    with platform() as service:
        rated = _rated(service, experiment_id, best)
    show_checkpoints(rated, output)


def _rated(service: Service, experiment_id: int, best: int | None) -> list[RatedCheckpoint]:
    from determined.platform.queries.outcome import best_first
    from determined.store import CheckpointFilter

    record = service.experiment(experiment_id)
    rated = service.reader.rated_checkpoints(CheckpointFilter(experiment_id))
    if best is None:
        return rated
    usable = [item for item in rated if item.value is not None and item.checkpoint.size >= 0]
    whole = [item for item in usable if item.checkpoint.state == "COMPLETED"]
    return best_first(whole, record.smaller_is_better)[:best]
