"""`det trial`: one trial, its log, and a way to run it by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from determined.cli._door import platform
from determined.cli._group import Group
from determined.cli._log_options import log_options
from determined.cli._options import ID, page_of, paging_options, utc_option
from determined.cli._show_logs import LogRequest, show_logs
from determined.cli._tables import Output, output_options

if TYPE_CHECKING:
    from pathlib import Path

    from determined.platform.service import Service


@click.group(cls=Group)
def trial() -> None:
    """Look at trials, end them, debug them."""


@trial.verb("describe")
@click.argument("trial_id", type=ID, metavar="ID")
@click.option("--metrics-summary", is_flag=True, help="Only the summary of each metric.")
@click.option("--metrics", is_flag=True, help="With the metrics of each batch.")
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
    from determined.cli._trial_description import TrialDescription

    with platform() as service:
        found = TrialDescription.of(service, service.trial(trial_id), with_batches=metrics)
        steps = page_of(found.steps, limit, offset, pages)
        if metrics_summary:
            found.show_summary(output)
        elif output == "json":
            found.show_json(steps)
        else:
            found.show(steps, output, utc)


@trial.verb("logs")
@click.argument("trial_id", type=ID, metavar="ID")
@log_options
def logs(trial_id: int, **options: Any) -> int:
    """Show the log of a trial, over all of its runs."""
    request = LogRequest.of(options)
    with platform() as service:
        return show_logs(service, service.trial(trial_id).experiment_id, trial_id, request)


@trial.verb("kill")
@click.argument("trial_id", type=ID, metavar="ID")
def kill(trial_id: int) -> None:
    """End a trial at once; its search goes on without it."""
    with platform(wake=False) as service:
        service.kill_trial(trial_id)
        click.echo(f"Killed trial {trial_id}")


@trial.verb("debug")
@click.argument("trial_id", type=ID, metavar="ID")
@click.option("--from-beginning", is_flag=True, help="Do not load the trial's latest checkpoint.")
@click.option("--keep", is_flag=True, help="Keep the folder with its files at the end.")
def debug(trial_id: int, from_beginning: bool, keep: bool) -> int:
    """Run a trial once more in this terminal, where breakpoints work.

    It has the code, hyperparameters, environment and latest checkpoint of the trial, in a working
    copy of its own. Metrics are printed instead of recorded, checkpoints are thrown away at the
    end: the experiment does not change. The exit code is that of the trial.
    """
    import shutil
    import tempfile
    from pathlib import Path

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
    from determined.platform.debug_run import prepare
    from determined.platform.service import RefusedError

    record = service.trial(trial_id)
    experiment = service.experiment(record.experiment_id)
    if experiment.unmanaged:
        raise RefusedError(
            f"Trial {trial_id} is unmanaged: its script was started by hand, and its code is not "
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
