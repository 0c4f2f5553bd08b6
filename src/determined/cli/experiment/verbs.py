"""Commands that change the state of an experiment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from determined.cli._commands.errors import OK
from determined.cli._commands.options import EXPERIMENT_ID, ExperimentId, Ids, Project, Workspace
from determined.cli._commands.platform import platform
from determined.cli._present.layout import printable
from determined.cli._present.results import json_option, report, wants_json
from determined.cli._present.tables import show_json
from determined.cli.experiment.noun import experiment

if TYPE_CHECKING:
    from determined.platform.service import Service

_OVER = ("COMPLETED", "CANCELED", "ERROR")
_GOES_ON = ("ACTIVE",)
_STOPPING = ("STOPPING_COMPLETED", "STOPPING_CANCELED", "STOPPING_ERROR", "STOPPING_KILLED")
_NOT_OVER = ("ACTIVE", "PAUSED", *_STOPPING)


def _verb(
    name: str,
    past: str,
    help_text: str,
    act: Callable[[Service, int], None],
    states: tuple[str, ...],
    aliases: tuple[str, ...] = (),
) -> None:
    """Add a command that takes ids, of experiments in these states, and reports when it is done."""

    @experiment.verb(name, aliases=aliases, help=help_text)
    @click.argument("experiment_ids", type=Ids(ExperimentId(*states)), metavar="ID[,ID...]")
    @json_option
    def command(experiment_ids: list[int]) -> None:
        with platform(wake=False) as service:
            for experiment_id in experiment_ids:
                service.experiment(experiment_id)
            for experiment_id in experiment_ids:
                before = service.experiment(experiment_id).state
                act(service, experiment_id)
                if not wants_json():
                    click.echo(_past_tense(past, experiment_id, before))
            if wants_json():
                found = map(service.experiment, experiment_ids)
                show_json([{"experiment_id": one.id, "state": one.state} for one in found])


def _past_tense(past: str, experiment_id: int, before: str) -> str:
    """What a verb did; nothing, if it ends what has ended."""
    if past in ("Killed", "Canceled") and before in _OVER:
        return f"Experiment {experiment_id} had already ended: it is {before}"
    return f"{past} experiment {experiment_id}"


_verb(
    "pause",
    "Paused",
    "Pause an experiment: its trials save a checkpoint and free their slots.",
    lambda service, number: service.pause(number),
    _GOES_ON,
)
_verb(
    "activate",
    "Activated",
    "Resume a paused experiment from its checkpoints.",
    lambda service, number: service.activate(number),
    ("PAUSED",),
    ("unpause",),
)
_verb(
    "cancel",
    "Canceled",
    "End an experiment: its trials save a checkpoint first.",
    lambda service, number: service.cancel(number),
    _NOT_OVER,
)
_verb(
    "kill",
    "Killed",
    "End an experiment at once, without a last checkpoint.",
    lambda service, number: service.kill(number),
    _NOT_OVER,
)
_verb(
    "archive",
    "Archived",
    "Hide an experiment that has ended from lists.",
    lambda service, number: service.archive(number),
    _OVER,
)
_verb(
    "unarchive",
    "Unarchived",
    "Show an archived experiment in lists again.",
    lambda service, number: service.archive(number, archived=False),
    _OVER,
)


@experiment.verb("move")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.argument("workspace", type=Workspace())
@click.argument("project", type=Project())
@json_option
def move(experiment_id: int, workspace: str, project: str) -> None:
    """Move an experiment to another project."""
    with platform(wake=False) as service:
        service.move(experiment_id, workspace, project)
        place = f"project '{printable(project)}' of workspace '{printable(workspace)}'"
        report(
            f"Moved experiment {experiment_id} to {place}",
            experiment_id=experiment_id,
            workspace=workspace,
            project=project,
        )


@experiment.verb("continue")
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
