"""`det experiment describe`: experiments, their trials, and what these did."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from determined.cli._commands.options import EXPERIMENT_IDS, utc_option
from determined.cli._commands.platform import platform
from determined.cli._present.layout import printable
from determined.cli._present.records import mention_others, validated_or_saved
from determined.cli._present.tables import (
    Output,
    counted,
    hparams_text,
    output_options,
    percent,
    show,
    show_json,
    time_text,
)
from determined.cli.experiment.listing import (
    experiment_duration,
    pool_of,
    show_trials,
    shown_state,
    trial_json,
)
from determined.cli.experiment.noun import experiment

if TYPE_CHECKING:
    from determined.platform.queries.workloads import Workload
    from determined.platform.service import Service
    from determined.store import Experiment, Trial

_MOST_STEPS = 20
_SPARE = ("Validation Report Time", "Checkpoint Report Time", "Validation State", "State")
_Table = tuple[list[str], list[list[Any]]]


@experiment.verb("describe")
@click.argument("experiment_ids", type=EXPERIMENT_IDS, metavar="ID[,ID...]")
@click.option("--metrics", is_flag=True, help="Include the metrics of each step.")
@click.option(
    "--outdir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write experiments.csv, trials.csv and workloads.csv there.",
)
@utc_option
@output_options
def describe(
    experiment_ids: list[int], metrics: bool, outdir: Path | None, utc: bool, output: Output
) -> None:
    """Show what came of experiments, their trials, and what happened at each step."""
    if outdir is not None and output != "table":
        raise click.UsageError("--outdir cannot be combined with --csv or --json.")
    with platform() as service:
        found = [service.experiment(number) for number in experiment_ids]
        trials = {e.id: _trials(service, e.id) for e in found}
        steps = [w for e in found for t in trials[e.id] for w in _workloads(service, t)]
        running = {run.trial_id for run in service.reader.unfinished_runs()}
        if output == "json":
            show_json([_json(service, e, trials[e.id], steps, metrics) for e in found])
            return

        def write_time(seconds: float | None) -> str:
            return time_text(seconds, utc=utc)

        if outdir is None and output == "table":
            for record in found:
                _tell(service, record, trials[record.id], running, utc)
            _show_steps(found, steps, metrics, write_time)
            _show_lineage(service, trials)
            return
        tables = {
            "experiments": _experiments(service, found, write_time),
            "trials": _trials_table(trials, running, write_time),
            "workloads": _workloads_table(steps, metrics, write_time),
        }
        if outdir is not None:
            _write(outdir, tables)
            return
        for headers, rows in tables.values():
            show(headers, rows, output)


def _tell(
    service: Service, record: Experiment, trials: list[Trial], running: set[int], utc: bool
) -> None:
    """What came of an experiment, what it is, then its trials."""
    from determined.cli._present.following import show_outcome

    show_outcome(service, record.id)
    click.echo()
    for name, value in _facts(record, utc).items():
        if value:
            click.echo(f"{name + ':':<12} {printable(value)}")
    if trials:
        click.echo("\nTrials:")
        show_trials(record, trials, running, utc)


def _facts(record: Experiment, utc: bool) -> dict[str, str]:
    started, took = record.started or record.created, experiment_duration(record, time.time())
    verb = "took" if record.ended is not None else "so far"
    return {
        "Name": record.name,
        "Description": record.description,
        "Labels": ", ".join(record.labels),
        "Started": f"{time_text(started, utc=utc)}, {verb} {took}",
        "Progress": "" if record.ended is not None else percent(record.progress),
        "Archived": "yes" if record.archived else "",
    }


def _show_steps(
    found: list[Experiment],
    steps: list[Workload],
    metrics: bool,
    write_time: Callable[[float | None], str],
) -> None:
    """The steps, unless there are so many that the answer above would be out of sight."""
    chosen = steps if metrics else validated_or_saved(steps)
    if not metrics and len(chosen) > _MOST_STEPS:
        click.echo(f"\n{counted(len(steps), 'step')}: --metrics, --csv or --json shows them.")
        return
    if chosen:
        click.echo("\nWorkloads:")
        if metrics:
            show(*_workloads_table(chosen, metrics, write_time), spare=_SPARE)
        else:
            show(*_steps_table(found, chosen, write_time))
    mention_others(len(steps) - len(chosen))


def _steps_table(
    found: list[Experiment], steps: list[Workload], write_time: Callable[[float | None], str]
) -> _Table:
    metrics = sorted({e.searcher_metric for e in found if e.searcher_metric is not None})
    headers = ["Trial ID", "# of Batches", *metrics, "Checkpoint", "Report Time"]
    return headers, [
        [
            step.trial_id,
            step.steps_completed,
            *(step.validation.get(name) for name in metrics),
            step.checkpoint.state if step.checkpoint is not None else "",
            write_time(step.time),
        ]
        for step in steps
    ]


def _trials(service: Service, experiment_id: int) -> list[Trial]:
    from determined.store import TrialFilter

    return service.reader.trials(TrialFilter(experiment_id=experiment_id)).rows


def _workloads(service: Service, trial: Trial) -> list[Workload]:
    from determined.platform.queries.workloads import workloads

    return workloads(service.reader, trial.id)


def _experiments(
    service: Service, found: list[Experiment], write_time: Callable[[float | None], str]
) -> _Table:
    running = service.running_experiments()
    headers = ["Experiment ID", "State", "Progress", "Started", "Ended", "Name", "Description"]
    rows: list[list[Any]] = [
        [
            e.id,
            shown_state(e.state, e.id in running),
            percent(e.progress),
            write_time(e.started or e.created),
            write_time(e.ended),
            e.name,
            e.description,
            e.archived,
            pool_of(e),
            ", ".join(e.labels),
        ]
        for e in found
    ]
    return [*headers, "Archived", "Resource Pool", "Labels"], rows


def _trials_table(
    trials: dict[int, list[Trial]],
    running: set[int],
    write_time: Callable[[float | None], str],
) -> _Table:
    headers = ["Trial ID", "Experiment ID", "State", "Started", "Ended", "H-Params"]
    return headers, [
        [
            trial.id,
            trial.experiment_id,
            shown_state(trial.state, trial.id in running),
            write_time(trial.started),
            write_time(trial.ended),
            hparams_text(trial.hparams),
        ]
        for of_experiment in trials.values()
        for trial in of_experiment
    ]


def _workloads_table(
    steps: list[Workload], metrics: bool, write_time: Callable[[float | None], str]
) -> _Table:
    training = sorted({name for w in steps for name in w.training}) if metrics else []
    validation = sorted({name for w in steps for name in w.validation}) if metrics else []
    headers = ["Trial ID", "# of Batches", "State", "Report Time"]
    headers += [f"Training Metric: {name}" for name in training]
    headers += ["Checkpoint State", "Checkpoint Report Time"]
    headers += ["Validation State", "Validation Report Time"]
    headers += [f"Validation Metric: {name}" for name in validation]
    return headers, [
        [
            w.trial_id,
            w.steps_completed,
            "COMPLETED" if w.training_time is not None else "",
            write_time(w.training_time),
            *(w.training.get(name) for name in training),
            w.checkpoint.state if w.checkpoint is not None else "",
            write_time(w.checkpoint.report_time) if w.checkpoint is not None else "",
            "COMPLETED" if w.validation_time is not None else "",
            write_time(w.validation_time),
            *(w.validation.get(name) for name in validation),
        ]
        for w in steps
    ]


def _json(
    service: Service, record: Experiment, trials: list[Trial], steps: list[Workload], metrics: bool
) -> dict[str, Any]:
    """The original's answer, and beside it the trials, with what they did if `metrics`."""
    from determined.cli._present.original_json import experiment_response, workload_containers

    rows = [trial_json(trial) for trial in trials]
    for trial in rows if metrics else ():
        own = [step for step in steps if step.trial_id == trial["id"]]
        trial["workloads"] = workload_containers(own)
    return {**experiment_response(service, record, pool_of(record)), "trials": rows}


def _write(folder: Path, tables: dict[str, _Table]) -> None:
    from determined.cli._present.tables import write_csv

    folder.mkdir(parents=True, exist_ok=True)
    for name, (headers, rows) in tables.items():
        path = folder / f"{name}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            write_csv(file, headers, rows)
        click.echo(f"Wrote {path}")


def _show_lineage(service: Service, trials: dict[int, list[Trial]]) -> None:
    from determined.platform.queries.lineage import lineage_of

    lines = [
        f"  trial {trial.id}: {line}"
        for of_experiment in trials.values()
        for trial in of_experiment
        for line in lineage_of(service.reader, trial.id).lines
    ]
    if lines:
        click.echo("\nLineage:")
        for line in lines:
            click.echo(printable(line))
