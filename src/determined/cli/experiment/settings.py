"""Names, labels and scheduling settings of experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from determined.cli._commands.group import Group
from determined.cli._commands.options import EXPERIMENT_ID, TEXT
from determined.cli._commands.platform import platform
from determined.cli._present.layout import printable
from determined.cli._present.results import json_option, report
from determined.cli.experiment.noun import experiment

if TYPE_CHECKING:
    from determined.platform.service import Service


def _report(service: Service, experiment_id: int, line: str) -> None:
    """Print the change, or the current values as JSON."""
    now = service.experiment(experiment_id)
    fields = ("name", "description", "labels", "priority", "max_slots", "weight")
    report(line, experiment_id=experiment_id, **{field: getattr(now, field) for field in fields})


@click.group("label", cls=Group)
def label() -> None:
    """Add and remove labels."""


@label.verb("add")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.argument("text", type=TEXT, metavar="LABEL")
@json_option
def add_label(experiment_id: int, text: str) -> None:
    """Add a label to an experiment."""
    with platform(wake=False) as service:
        service.label(experiment_id, text)
        _report(
            service, experiment_id, f"Added label '{printable(text)}' to experiment {experiment_id}"
        )


@label.verb("remove")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.argument("text", type=TEXT, metavar="LABEL")
@json_option
def remove_label(experiment_id: int, text: str) -> None:
    """Remove a label from an experiment."""
    with platform(wake=False) as service:
        service.label(experiment_id, text, remove=True)
        _report(
            service,
            experiment_id,
            f"Removed label '{printable(text)}' from experiment {experiment_id}",
        )


@click.group("set", cls=Group)
def setting() -> None:
    """Change name, description, scheduling, and which checkpoints are kept."""


@setting.verb("name")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.argument("text", type=TEXT, metavar="TEXT")
@json_option
def set_name(experiment_id: int, text: str) -> None:
    """Set the name of an experiment."""
    if not text.strip():
        raise click.UsageError("An experiment needs a name.")
    with platform(wake=False) as service:
        service.change(experiment_id, name=text)
        _report(
            service,
            experiment_id,
            f"Set the name of experiment {experiment_id} to '{printable(text)}'",
        )


@setting.verb("description")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.argument("text", type=TEXT, metavar="TEXT")
@json_option
def set_description(experiment_id: int, text: str) -> None:
    """Set the description of an experiment."""
    with platform(wake=False) as service:
        service.change(experiment_id, description=text)
        _report(
            service,
            experiment_id,
            f"Set the description of experiment {experiment_id} to '{printable(text)}'",
        )


@setting.verb("priority")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.argument("priority", type=click.IntRange(1, 99), metavar="N")
@json_option
def set_priority(experiment_id: int, priority: int) -> None:
    """Set the priority: 1 is the highest, 99 the lowest. A higher one may preempt lower ones."""
    with platform(wake=False) as service:
        service.change(experiment_id, priority=priority)
        _report(
            service, experiment_id, f"Set the priority of experiment {experiment_id} to {priority}"
        )


@setting.verb("max-slots")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.argument("max_slots", metavar="N|none")
@json_option
def set_max_slots(experiment_id: int, max_slots: str) -> None:
    """Set how many slots an experiment may use at once; `none` lifts the limit."""
    is_number = max_slots.isascii() and max_slots.isdigit() and int(max_slots) < 2**31
    if max_slots != "none" and not is_number:
        raise click.UsageError(f"expected an integer or `none`, got {max_slots!r}.")
    with platform(wake=False) as service:
        service.change(experiment_id, max_slots=None if max_slots == "none" else int(max_slots))
        _report(
            service, experiment_id, f"Set max_slots of experiment {experiment_id} to {max_slots}"
        )


@setting.verb("weight")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.argument("weight", type=float, metavar="X")
@json_option
def set_weight(experiment_id: int, weight: float) -> None:
    """Record a weight. It has no effect: priorities decide what runs."""
    if not 0 < weight < float("inf"):
        raise click.UsageError(f"expected a number above 0, got {weight}.")
    with platform(wake=False) as service:
        service.change(experiment_id, weight=weight)
        _report(
            service, experiment_id, f"Set the weight of experiment {experiment_id} to {weight:g}"
        )


experiment.add_command(label)
experiment.add_command(setting)
