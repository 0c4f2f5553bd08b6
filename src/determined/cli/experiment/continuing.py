"""`det experiment continue`."""

from __future__ import annotations

from typing import Any

import click

from determined.cli._commands.errors import OK
from determined.cli._commands.group import Command
from determined.cli._commands.options import EXPERIMENT_ID
from determined.cli._commands.platform import platform


@click.command("continue", cls=Command)
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.option("--max-trials", type=click.IntRange(1), help="Raise the number of trials to this.")
@click.option("--max-time", type=click.IntRange(1), help="Train the best trials up to this time.")
@click.option("--max-length", type=click.IntRange(1), help="Train all finished trials this long.")
@click.option(
    "--rerun-failed/--no-rerun-failed",
    default=True,
    show_default=True,
    help="Rerun trials that did not finish.",
)
@click.option("--config", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one value.")
@click.option(
    "--config-file", metavar="FILE", help="A file with values that override the current ones."
)
@click.option("-f", "--follow", "--follow-first-trial", is_flag=True, help="Wait for the end.")
def continue_command(
    experiment_id: int,
    max_trials: int | None,
    max_time: int | None,
    max_length: int | None,
    rerun_failed: bool,
    overrides: tuple[str, ...],
    config_file: str | None,
    follow: bool,
) -> int:
    """Continue an experiment: failed trials again, more trials, longer training.

    It must have ended, or have paused itself because trial after trial failed in the same way.
    Finished trials are kept; in a halving search, stopped trials may be promoted. The
    trial of a `single` experiment runs again from its latest checkpoint, and its configuration can
    be changed.
    """
    with platform(wake=False) as service:
        service.continue_experiment(
            experiment_id,
            max_trials=max_trials,
            max_time=max_time,
            max_length=max_length,
            rerun_failed=rerun_failed,
            overrides=overrides,
            config=None if config_file is None else _read(config_file),
        )
        click.echo(f"Continued experiment {experiment_id}")
        return _wait(service, experiment_id) if follow else OK


def _read(config_file: str) -> dict[str, Any]:
    from determined.config.reading.yaml_reader import read_value

    with click.open_file(config_file, "rb") as file:
        try:
            content = read_value(file.read(), config_file)
        except ValueError as error:
            raise click.ClickException(str(error)) from None
    if not isinstance(content, dict):
        raise click.ClickException(f"{config_file}: expected a mapping of keys to values.")
    return content


def _wait(service: Any, experiment_id: int) -> int:
    from determined.cli._present.following import Follower, exit_code, guarded, show_outcome

    follower = Follower(service, experiment_id)

    def work() -> int:
        follower.wait(polling_seconds=1.0)
        follower.close()
        show_outcome(service, experiment_id)
        return exit_code(service.experiment(experiment_id))

    return guarded(follower, f"det experiment wait {experiment_id}", work)
