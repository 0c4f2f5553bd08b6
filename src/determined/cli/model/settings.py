"""Descriptions, labels, names, comments and notes of models and versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from determined.cli._commands.group import Group
from determined.cli._commands.options import ID, TEXT, ModelName
from determined.cli._present.layout import printable
from determined.cli._present.records import record_json
from determined.cli._present.results import json_option, report
from determined.cli.model.noun import model, open_registry

if TYPE_CHECKING:
    from determined.platform.service.model_registry import ModelRegistry


def _report(registry: ModelRegistry, model_id: int, line: str) -> None:
    """Tell a change: the line, with the model's name after it."""
    now = registry.model(model_id)
    report(f"{line} model {printable(now.name)}", **record_json(now))


@click.group("label", cls=Group)
def label() -> None:
    """Add and remove labels."""


@label.verb("add")
@click.argument("name", type=ModelName())
@click.argument("text", type=TEXT, metavar="LABEL")
@json_option
def add_label(name: str, text: str) -> None:
    """Give a model a label."""
    with open_registry() as (_, registry):
        model_id = registry.model(name).id
        registry.label(model_id, text)
        _report(registry, model_id, f"Added label '{printable(text)}' to")


@label.verb("remove")
@click.argument("name", type=ModelName())
@click.argument("text", type=TEXT, metavar="LABEL")
@json_option
def remove_label(name: str, text: str) -> None:
    """Take a label from a model."""
    with open_registry() as (_, registry):
        model_id = registry.model(name).id
        registry.label(model_id, text, remove=True)
        _report(registry, model_id, f"Removed label '{printable(text)}' from")


@click.group("set", cls=Group)
def setting() -> None:
    """Change a model's description, or the name, comment and notes of a version."""


@setting.verb("description")
@click.argument("name", type=ModelName())
@click.argument("text", type=TEXT, metavar="TEXT")
@json_option
def set_description(name: str, text: str) -> None:
    """Describe a model."""
    with open_registry() as (_, registry):
        model_id = registry.model(name).id
        registry.change(model_id, description=text)
        _report(registry, model_id, "Set the description of")


def _set_of_version(verb: str, field: str, help_text: str) -> None:
    @setting.verb(verb, help=help_text)
    @click.argument("name", type=ModelName())
    @click.argument("version", type=ID, metavar="N")
    @click.argument("text", type=TEXT, metavar="TEXT")
    @json_option
    def command(name: str, version: int, text: str) -> None:
        with open_registry() as (_, registry):
            owner = registry.model(name)
            registry.change_version(registry.version(owner, version).id, **{field: text})
            report(
                f"Set the {field} of version {version} of model {printable(owner.name)}",
                **record_json(registry.version(owner, version)),
            )


_set_of_version("version-name", "name", "Name a version.")
_set_of_version("comment", "comment", "Set the comment of a version.")
_set_of_version("notes", "notes", "Set the notes of a version.")

model.add_command(label)
model.add_command(setting)
