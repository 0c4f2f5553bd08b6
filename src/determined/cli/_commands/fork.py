"""`det trial fork`."""

from __future__ import annotations

from typing import Any

import click

from determined.cli._commands.errors import OK
from determined.cli._commands.group import Command
from determined.cli._commands.options import TRIAL_ID
from determined.cli._commands.platform import platform
from determined.cli._present.layout import printable
from determined.cli._present.results import json_option, report, wants_json


@click.command("fork", cls=Command)
@click.argument("trial_id", type=TRIAL_ID, metavar="ID")
@click.option("--at", type=click.IntRange(1), required=True, help="The batches that both share.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a hyperparameter from there on.",
)
@click.option("--max-length", type=click.IntRange(1), help="Train this long; default: as before.")
@click.option("--seed", type=int, help="Other random numbers from there on.")
@click.option("--name", help="The name of the new experiment.")
@click.option("-f", "--follow", "--follow-first-trial", is_flag=True, help="Wait for the end.")
@json_option
def fork_command(
    trial_id: int,
    at: int,
    changes: tuple[str, ...],
    max_length: int | None,
    seed: int | None,
    name: str | None,
    follow: bool,
) -> int:
    """Train again from a batch on: "what if the rate had been lower from batch 8,000?"

    Creates an experiment with one trial, whose first batches are those of trial ID: its rows
    are not stored again, and unchanged it ends with the same weights. It starts from the newest
    checkpoint at or before that batch, and trains what is missing as its parent did.

    What the restored state would override and no rule covers is refused before anything trains.
    """
    if wants_json() and follow:
        raise click.UsageError("--json cannot be combined with --follow.")
    from determined.platform.service.forking import Forks

    hparams = dict(_parsed(change) for change in changes)
    with platform() as service:
        forks = Forks(service)
        start = forks.plan(trial_id, at)
        if not wants_json():
            click.echo(printable(str(start)))
        experiment_id = forks.create(
            trial_id, at, hparams, name=name, max_length=max_length, seed=seed
        )
        report(
            f"Created experiment {experiment_id}",
            experiment_id=experiment_id,
            checkpoint=None if start.checkpoint is None else start.checkpoint.uuid,
            batches_trained_again=start.batches_again,
        )
        if follow:
            from determined.cli.experiment.create import follow as follow_log

            return follow_log(service, experiment_id)
    return OK


def _parsed(change: str) -> tuple[str, Any]:
    from determined.config.reading.yaml_reader import read_value

    name, equals, text = change.partition("=")
    if not name or not equals:
        raise click.UsageError(f"--set: expected NAME=VALUE, got {change!r}.")
    try:
        return name, read_value(text.encode(), "--set")
    except ValueError as error:
        raise click.UsageError(f"--set {name}: {error}") from None
