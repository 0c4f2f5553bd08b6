"""`det experiment logs` and `det experiment wait`."""

from __future__ import annotations

import click

from determined.cli._commands.options import EXPERIMENT_ID, TRIAL_ID
from determined.cli._commands.platform import platform
from determined.cli._present.logs import LogRequest, log_options, show_logs
from determined.cli._present.results import json_option, wants_json
from determined.cli._present.tables import show_json
from determined.cli.experiment.listing import experiment_json
from determined.cli.experiment.noun import experiment


@experiment.verb("logs")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.option("--trial", "trial_id", type=TRIAL_ID, metavar="TRIAL", help="Only this trial.")
@log_options
def logs(experiment_id: int, trial_id: int | None, **options: object) -> int:
    """Show the logs of all trials of an experiment, interleaved by time.

    Ctrl-C while following leaves the experiment running.
    """
    request = LogRequest.of(options)
    with platform() as service:
        service.experiment(experiment_id)
        if trial_id is not None and service.trial(trial_id).experiment_id != experiment_id:
            raise click.UsageError(
                f"Trial {trial_id} does not belong to experiment {experiment_id}."
            )
        return show_logs(service, experiment_id, trial_id, request)


@experiment.verb("wait")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.option(
    "--polling-interval",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to check, at least.",
)
@json_option
def wait(experiment_id: int, polling_interval: float) -> int:
    """Wait until an experiment ends; the exit code is 0 only if it is COMPLETED.

    It is 4 if the experiment has paused itself, because trial after trial fails in the same way.
    """
    from determined.cli._present.following import Follower, exit_code, guarded, show_outcome

    with platform() as service:
        service.experiment(experiment_id)
        follower = Follower(service, experiment_id)

        def work() -> int:
            follower.wait(polling_interval)
            follower.close()
            ended = service.experiment(experiment_id)
            if wants_json():
                show_json(experiment_json(ended))
            else:
                show_outcome(service, experiment_id)
            return exit_code(ended)

        return guarded(follower, f"det experiment wait {experiment_id}", work)
