"""Commands that change the state of an experiment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from determined.cli._commands.options import EXPERIMENT_ID, ExperimentId, Ids, Project, Workspace
from determined.cli._commands.platform import platform
from determined.cli._present.results import done, json_option, tells_json
from determined.cli._present.tables import printable, show_json
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
                if not tells_json():
                    click.echo(_told(past, experiment_id, before))
            if tells_json():
                found = map(service.experiment, experiment_ids)
                show_json([{"experiment_id": one.id, "state": one.state} for one in found])


def _told(past: str, experiment_id: int, before: str) -> str:
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
        done(
            f"Moved experiment {experiment_id} to {place}",
            experiment_id=experiment_id,
            workspace=workspace,
            project=project,
        )
