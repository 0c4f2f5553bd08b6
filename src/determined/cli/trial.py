"""`det trial`: one trial, its log, and a way to run it in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from determined.cli._commands.absent import absent
from determined.cli._commands.downloads import best_checkpoints, download_options
from determined.cli._commands.fork import fork_command
from determined.cli._commands.group import Group
from determined.cli._commands.options import TRIAL_ID, UUIDS, page_of, paging_options, utc_option
from determined.cli._commands.platform import platform
from determined.cli._commands.replay import diff_command, replay_command
from determined.cli._present.logs import LogRequest, log_options, show_logs
from determined.cli._present.records import checkpoint_json
from determined.cli._present.results import json_option, report
from determined.cli._present.tables import (
    Output,
    hparams_text,
    output_options,
    show,
    show_json,
    time_text,
)

if TYPE_CHECKING:
    from determined.platform.service import Service
    from determined.store import Checkpoint


@click.group(cls=Group)
def trial() -> None:
    """Inspect, fork, replay, compare, kill and debug trials."""


@trial.verb("describe")
@click.argument("trial_id", type=TRIAL_ID, metavar="ID")
@click.option("--metrics-summary", is_flag=True, help="Only the summary of each metric.")
@click.option("--metrics", is_flag=True, help="Include the metrics of each batch.")
@paging_options(1000)
@utc_option
@output_options
def describe(
    trial_id: int,
    metrics_summary: bool,
    metrics: bool,
    limit: int,
    offset: int,
    pages: str,
    utc: bool,
    output: Output,
) -> None:
    """Show a trial: hyperparameters, metrics, runs, and what its search decided about it."""
    from determined.cli._present.trial_description import TrialDescription

    with platform() as service:
        found = TrialDescription.of(service, service.trial(trial_id), with_batches=metrics)
        steps = page_of(found.steps, limit, offset, pages)
        if metrics_summary:
            found.show_summary(output)
        elif output == "json":
            found.show_json(steps)
        else:
            found.show(steps, output, utc)


trial.add_command(fork_command)
trial.add_command(replay_command)
trial.add_command(diff_command)


@trial.verb("logs")
@click.argument("trial_id", type=TRIAL_ID, metavar="ID")
@log_options
def logs(trial_id: int, **options: Any) -> int:
    """Show the log of a trial, over all of its runs."""
    request = LogRequest.of(options)
    with platform() as service:
        return show_logs(service, service.trial(trial_id).experiment_id, trial_id, request)


@trial.verb("download")
@click.argument("trial_id", type=TRIAL_ID, metavar="ID")
@click.option("--best", is_flag=True, help="The best checkpoint by the searcher's metric.")
@click.option("--latest", is_flag=True, help="The checkpoint after the most batches.")
@click.option("--uuid", type=UUIDS, help="This checkpoint.")
@download_options("checkpoints/UUID")
def download(
    trial_id: int,
    best: bool,
    latest: bool,
    uuid: str | None,
    output_dir: Path | None,
    sort_by: str | None,
    smaller_is_better: bool | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Download one checkpoint of a trial: the best, the latest, or a given one."""
    if best + latest + (uuid is not None) != 1:
        raise click.UsageError("Give one of --best, --latest and --uuid.")
    if not best and (sort_by is not None or smaller_is_better is not None):
        raise click.UsageError("--sort-by and --smaller-is-better are for --best.")
    with platform() as service:
        record = service.trial(trial_id)
        if uuid is not None:
            found = service.checkpoint(uuid)
            if found.trial_id != trial_id:
                raise click.UsageError(f"Checkpoint {uuid} does not belong to trial {trial_id}.")
        elif latest:
            found = _latest(service, trial_id)
        else:
            from determined.store import CheckpointFilter

            where = CheckpointFilter(trial_id=trial_id, states=["COMPLETED"])
            ranked = best_checkpoints(
                service, where, record.experiment_id, sort_by, smaller_is_better
            )
            found = ranked[0].checkpoint
        target = (output_dir or Path("checkpoints", found.uuid)).absolute()
        path = service.download(found, target)
        if as_json:
            show_json({**checkpoint_json(found), "path": str(path)})
            return
        if quiet:
            click.echo(str(path))
            return
        click.echo(f"Local checkpoint path:\n{path}\n")
        headers = ["Experiment ID", "Trial ID", "Steps Completed", "Report Time"]
        headers += ["Checkpoint UUID", "Validation Metrics", "Metadata"]
        row = [found.experiment_id, found.trial_id, found.steps_completed]
        metrics, metadata = service.metrics_at(found), found.metadata
        cells = [time_text(found.report_time), found.uuid, hparams_text(metrics)]
        show(headers, [[*row, *cells, hparams_text(metadata)]], in_full=True)


def _latest(service: Service, trial_id: int) -> Checkpoint:
    from determined.store import CheckpointFilter, Order

    where = CheckpointFilter(trial_id=trial_id, states=["COMPLETED"])
    found = service.reader.checkpoints(where, Order("steps_completed", descending=True), 1).rows
    if not found:
        raise click.ClickException(f"Trial {trial_id} has no complete checkpoint.")
    return found[0]


@trial.verb("support-bundle")
@click.argument("trial_id", type=TRIAL_ID, metavar="ID")
@click.option(
    "-o",
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where to put it; default: here.",
)
def support_bundle(trial_id: int, output_dir: Path) -> None:
    """Collect the logs, records and outcome of a trial in one archive.

    Secrets in the configuration are masked. Check the logs before you share it.
    """
    from determined.platform.debugging.support_bundle import write_bundle

    with platform() as service:
        record = service.trial(trial_id)
        click.echo(f"Wrote {write_bundle(service.home, service.reader, record, output_dir)}")


@trial.verb("kill")
@click.argument("trial_id", type=TRIAL_ID, metavar="ID")
@json_option
def kill(trial_id: int) -> None:
    """Kill a trial; its search continues without it."""
    with platform(wake=False) as service:
        before = service.trial(trial_id).state
        service.kill_trial(trial_id)
        state = service.trial(trial_id).state
        is_over = before in ("COMPLETED", "CANCELED", "ERROR")
        ended = f"Trial {trial_id} had already ended: it is {before}"
        report(ended if is_over else f"Killed trial {trial_id}", trial_id=trial_id, state=state)


@trial.verb("debug")
@click.argument("trial_id", type=TRIAL_ID, metavar="ID")
@click.option("--from-beginning", is_flag=True, help="Do not load the trial's latest checkpoint.")
@click.option("--keep", is_flag=True, help="Keep the folder with its files at the end.")
def debug(trial_id: int, from_beginning: bool, keep: bool) -> int:
    """Run a trial again in this terminal, where breakpoints work.

    It uses the code, hyperparameters, environment and latest checkpoint of the trial, in a working
    copy of its own. Metrics are printed instead of recorded, and checkpoints are discarded at the
    end: the experiment does not change. The exit code is the trial's.
    """
    import shutil
    import tempfile

    with platform(wake=False) as service:
        service.trial(trial_id)
        folder = Path(tempfile.mkdtemp(prefix=f"det-debug-{trial_id}-"))
        try:
            return _debug(service, trial_id, folder, from_beginning)
        finally:
            if keep:
                click.echo(f"Its files are in {folder}", err=True)
            else:
                shutil.rmtree(folder, ignore_errors=True)


def _debug(service: Service, trial_id: int, folder: Path, from_beginning: bool) -> int:
    from determined.platform.debugging.debug_run import prepare
    from determined.platform.service import RefusedError

    record = service.trial(trial_id)
    experiment = service.experiment(record.experiment_id)
    if experiment.unmanaged:
        raise RefusedError(
            f"Trial {trial_id} is unmanaged: its script was started manually, and its code is not "
            "stored here. Start the script itself."
        )
    ready = prepare(
        service.reader, service.home, record, experiment, folder, from_beginning=from_beginning
    )
    start = "the beginning"
    if ready.checkpoint is not None:
        start = f"batch {ready.checkpoint.steps_completed} (checkpoint {ready.checkpoint.uuid})"
    click.echo(
        f"Debugging trial {trial_id} from {start} in {ready.workdir}; nothing is recorded.",
        err=True,
    )
    code = ready.run()
    click.echo(f"Trial {trial_id} ended with exit code {code}.", err=True)
    return code


@click.group("set", cls=Group)
def setting() -> None:
    """Change how a trial is kept."""


absent(
    setting,
    "Logs are kept as long as their experiment: `det experiment delete` removes them.",
    "log-retention",
)
setting.hidden = True
trial.add_command(setting)
