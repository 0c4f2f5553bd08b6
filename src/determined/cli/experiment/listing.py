"""Lists: experiments, the trials of one, its checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from determined.cli._as_data import record_json
from determined.cli._door import platform
from determined.cli._options import (
    COUNT,
    ID,
    most_rows,
    page_of,
    paging_options,
    utc_option,
)
from determined.cli._tables import (
    Output,
    hparams_text,
    output_options,
    percent,
    show,
    size_text,
    time_text,
)
from determined.cli.experiment.noun import experiment

if TYPE_CHECKING:
    from determined.platform.service import Service
    from determined.store import Checkpoint, Experiment, RatedCheckpoint, Trial

_POOL = "default"


@experiment.verb("list", aliases=["ls"])
@click.option(
    "-a", "--all", "show_all", is_flag=True, help="Archived ones and those of others too."
)
@click.option("--show_project", "--show-project", is_flag=True, help="With workspace and project.")
@paging_options(200)
@utc_option
@output_options
def list_experiments(
    show_all: bool,
    show_project: bool,
    limit: int,
    offset: int,
    pages: str,
    utc: bool,
    output: Output,
) -> None:
    """List experiments, newest first."""
    from determined.store import ExperimentFilter, Order

    with platform() as service:
        if not service.has_store:
            _show_none(output)
            return
        wanted = ExperimentFilter() if show_all else ExperimentFilter(archived=False, owner=_user())
        order = Order(descending=True)
        found = service.reader.experiments(wanted, order, most_rows(limit, offset, pages)).rows
        chosen = page_of(found, limit, offset, pages)
        if not found:
            is_empty = show_all or not service.reader.experiments(limit=1).rows
            _show_none(output, is_empty=is_empty)
            return
        running = service.running_experiments()
        places = service.projects() if show_project else {}
    headers = ["ID", "Owner", "Name", "Parent ID", "State", "Progress", "Started", "Ended"]
    headers += ["Resource Pool"]
    rows = [_experiment_row(e, e.id in running, utc) for e in chosen]
    if show_project:
        headers = ["Workspace", "Project", *headers]
        rows = [
            [*places.get(e.project_id, ("", "")), *row] for e, row in zip(chosen, rows, strict=True)
        ]
    if show_all:
        headers = [*headers, "Archived"]
        rows = [[*row, e.archived] for e, row in zip(chosen, rows, strict=True)]
    show(headers, rows, output, [experiment_json(e) for e in chosen])


def _show_none(output: Output, *, is_empty: bool = True) -> None:
    if output == "json":
        show([], [], output, [])
    elif output == "table" and is_empty:
        click.echo("There are no experiments yet: `det experiment create CONFIG DIR` makes one.")
    elif output == "table":
        click.echo("None but archived ones and those of others: --all shows them.")


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
        _POOL,
    ]


def shown_state(state: str, is_running: bool) -> str:
    """The state with what ACTIVE means at this moment."""
    if state != "ACTIVE":
        return state
    return "RUNNING" if is_running else "QUEUED"


def experiment_json(record: Experiment) -> dict[str, Any]:
    """An experiment as data, without the configuration (`det experiment config` has it)."""
    hidden = ("config", "original_config", "environment", "unmanaged", "gc_is_due")
    return record_json(record, hidden)


@experiment.verb("list-trials", aliases=["lt"])
@click.argument("experiment_id", type=ID, metavar="ID")
@paging_options(200)
@utc_option
@output_options
def list_trials(
    experiment_id: int, limit: int, offset: int, pages: str, utc: bool, output: Output
) -> None:
    """List the trials of an experiment."""
    from determined.store import TrialFilter

    with platform() as service:
        service.experiment(experiment_id)
        only = TrialFilter(experiment_id=experiment_id)
        found = service.reader.trials(only, limit=most_rows(limit, offset, pages)).rows
        trials = page_of(found, limit, offset, pages)
        running = {run.trial_id for run in service.reader.unfinished_runs()}
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


def trial_json(trial: Trial) -> dict[str, Any]:
    """A trial as data."""
    return record_json(trial, ("not_before", "is_held"))


@experiment.verb("list-checkpoints", aliases=["lc"])
@click.argument("experiment_id", type=ID, metavar="ID")
@click.option("--best", type=COUNT, metavar="N", help="Only the N best by the searcher's metric.")
@output_options
def list_checkpoints(experiment_id: int, best: int | None, output: Output) -> None:
    """List the checkpoints of an experiment in the order of their reports, or the best ones."""
    with platform() as service:
        rated = _rated(service, experiment_id, best)
    headers = ["Trial ID", "# of Batches", "State", "Validation Metric", "UUID", "Resources"]
    rows = [
        [
            item.checkpoint.trial_id,
            item.checkpoint.steps_completed,
            item.checkpoint.state,
            item.value,
            item.checkpoint.uuid,
            len([name for name in item.checkpoint.resources if not name.endswith("/")]),
            size_text(item.checkpoint.size),
        ]
        for item in rated
    ]
    data = [{**checkpoint_json(item.checkpoint), "validation_metric": item.value} for item in rated]
    show([*headers, "Size"], rows, output, data)


def _rated(service: Service, experiment_id: int, best: int | None) -> list[RatedCheckpoint]:
    from determined.platform.outcome import best_first
    from determined.store import CheckpointFilter

    record = service.experiment(experiment_id)
    rated = service.reader.rated_checkpoints(CheckpointFilter(experiment_id))
    if best is None:
        return rated
    usable = [item for item in rated if item.value is not None and item.checkpoint.size >= 0]
    whole = [item for item in usable if item.checkpoint.state == "COMPLETED"]
    return best_first(whole, record.smaller_is_better)[:best]


def checkpoint_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """A checkpoint as data; where it is stored, without secrets."""
    from determined.config import masked

    content = record_json(checkpoint)
    content["storage"] = masked({"checkpoint_storage": checkpoint.storage})["checkpoint_storage"]
    return content
