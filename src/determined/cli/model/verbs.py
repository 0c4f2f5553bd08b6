"""Create, list, register, move and remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from determined.cli._commands.options import (
    ID,
    UUIDS,
    ModelName,
    order_options,
    utc_option,
    yes_option,
)
from determined.cli._present.layout import printable
from determined.cli._present.records import record_json
from determined.cli._present.results import json_option, report
from determined.cli._present.tables import (
    Output,
    hparams_text,
    output_options,
    show,
    show_json,
    time_text,
)
from determined.cli.model.noun import model, open_registry

if TYPE_CHECKING:
    from determined.platform.service import Service
    from determined.store import Model, ModelVersion

_ORDERS = {
    "name": "name",
    "description": "description",
    "creation_time": "created",
    "last_updated_time": "updated",
}


@model.verb("create")
@click.argument("name")
@click.option("--description", default="", help="What it is for.")
@click.option(
    "-w", "--workspace", "--workspace-name", metavar="NAME", help="The workspace it belongs to."
)
@click.option("--label", "labels", multiple=True, help="A label.")
@output_options
def create(
    name: str, description: str, workspace: str | None, labels: tuple[str, ...], output: Output
) -> None:
    """Create a model, for which versions can be registered."""
    from determined.platform.service.workspaces import Workspaces

    with open_registry() as (service, registry):
        workspace_id = 1 if workspace is None else Workspaces(service).named(workspace).id
        made = registry.create(
            name, description=description, labels=labels, workspace_id=workspace_id
        )
        _show_models(service, [made], output, utc=False)


@model.verb("list", aliases=["ls"])
@order_options(list(_ORDERS), default="last_updated_time")
@click.option(
    "-w", "--workspace", "--workspace-names", metavar="NAME", help="Only models of this workspace."
)
@click.option("-a", "--all", "show_all", is_flag=True, help="Include archived models.")
@utc_option
@output_options
def list_models(
    sort_by: str, order_by: str, workspace: str | None, show_all: bool, utc: bool, output: Output
) -> None:
    """List the models."""
    from determined.platform.service.workspaces import Workspaces

    with open_registry() as (service, registry):
        found = [model for model in registry.models() if show_all or not model.archived]
        if workspace is not None:
            wanted = Workspaces(service).named(workspace).id
            found = [model for model in found if model.workspace_id == wanted]
        found.sort(key=lambda model: getattr(model, _ORDERS[sort_by]), reverse=order_by == "desc")
        if not found and output == "table":
            click.echo("There are no models yet: `det model create NAME` adds one.")
            return
        _show_models(service, found, output, utc)


@model.verb("describe")
@click.argument("name", type=ModelName())
@click.option("--version", type=ID, metavar="N", help="Show this version, not the newest one.")
@utc_option
@output_options
def describe(name: str, version: int | None, utc: bool, output: Output) -> None:
    """Show a model and its newest version, or a given one."""
    with open_registry() as (service, registry):
        found = registry.model(name)
        versions = registry.versions(found.id)
        shown = versions[:1] if version is None else [registry.version(found, version)]
        if output == "json":
            data = [{**record_json(v), **_origin(service, v)} for v in shown]
            show_json({**record_json(found), "versions": data})
            return
        _show_models(service, [found], output, utc)
        click.echo()
        _show_versions(shown, output, utc)
        for one in shown if output == "table" else ():
            origin = _origin(service, one)
            click.echo(f"\nVersion {one.number} comes from:")
            click.echo(f"  Trial:            {origin['trial_id']}")
            click.echo(f"  Experiment:       {origin['experiment_id']}")
            click.echo(f"  Hyperparameters:  {printable(hparams_text(origin['hparams']))}")
            click.echo(f"  Metrics:          {printable(hparams_text(origin['metrics']))}")


def _origin(service: Service, version: ModelVersion) -> dict[str, Any]:
    """Where a version comes from: the trial of its checkpoint and the validation at its step."""
    checkpoint = service.checkpoint(version.checkpoint_uuid)
    trial = None if checkpoint.trial_id is None else service.trial(checkpoint.trial_id)
    return {
        "trial_id": checkpoint.trial_id,
        "experiment_id": checkpoint.experiment_id,
        "hparams": {} if trial is None else trial.hparams,
        "metrics": service.metrics_at(checkpoint),
    }


@model.verb("list-versions", aliases=["lv"])
@click.argument("name", type=ModelName())
@utc_option
@output_options
def list_versions(name: str, utc: bool, output: Output) -> None:
    """List the versions of a model, newest first."""
    with open_registry() as (_, registry):
        _show_versions(registry.versions(registry.model(name).id), output, utc)


@model.verb("register-version")
@click.argument("name", type=ModelName())
@click.argument("uuid", type=UUIDS)
@output_options
def register_version(name: str, uuid: str, output: Output) -> None:
    """Make a checkpoint the next version of a model."""
    with open_registry() as (service, registry):
        made = registry.register(registry.model(name).id, service.checkpoint(uuid).uuid)
        if output != "table":
            _show_versions([made], output, utc=False)
            return
        click.echo(f"Registered checkpoint {made.checkpoint_uuid} as version {made.number}")


@model.verb("delete-version")
@click.argument("name", type=ModelName())
@click.argument("version", type=ID, metavar="N")
@yes_option
@json_option
def delete_version(name: str, version: int, yes: bool) -> None:
    """Delete a version; its checkpoint stays, but is no longer protected."""
    with open_registry() as (_, registry):
        owner = registry.model(name)
        found = registry.version(owner, version)
        question = f"Remove version {version} of {printable(name)}?"
        if yes or click.confirm(question, err=True):
            registry.delete_version(found.id)
            report(
                f"Removed version {version} of model {printable(name)}",
                name=owner.name,
                version=version,
            )


@model.verb("delete")
@click.argument("name", type=ModelName())
@yes_option
@json_option
def delete(name: str, yes: bool) -> None:
    """Delete a model and its versions; their checkpoints stay, but are no longer protected."""
    with open_registry() as (_, registry):
        found = registry.model(name)
        count = len(registry.versions(found.id))
        question = f"Remove the model {printable(found.name)} and its {count} versions?"
        if yes or click.confirm(question, err=True):
            registry.delete(found.id)
            report(f"Removed model {printable(found.name)}", name=found.name, versions=count)


@model.verb("move")
@click.argument("name", type=ModelName())
@click.argument("workspace", required=False)
@click.option("-w", "--workspace-name", metavar="NAME", help="The workspace, as an option.")
@json_option
def move(name: str, workspace: str | None, workspace_name: str | None) -> None:
    """Move a model to another workspace."""
    from determined.platform.service.workspaces import Workspaces

    if (workspace is None) == (workspace_name is None):
        raise click.UsageError("Name one workspace: `det model move NAME WORKSPACE`.")
    workspace = workspace or str(workspace_name)
    with open_registry() as (service, registry):
        found = registry.model(name)
        registry.change(found.id, workspace_id=Workspaces(service).named(workspace).id)
        report(
            f"Moved model {printable(found.name)} to workspace {printable(workspace)}",
            **record_json(registry.model(found.id)),
        )


def _change(verb: str, past: str, help_text: str, archived: bool) -> None:
    @model.verb(verb, help=help_text)
    @click.argument("name", type=ModelName())
    @json_option
    def command(name: str) -> None:
        with open_registry() as (_, registry):
            found = registry.model(name)
            registry.change(found.id, archived=archived)
            now = record_json(registry.model(found.id))
            report(f"{past} model {printable(found.name)}", **now)


_change("archive", "Archived", "Hide a model from lists; it takes no new versions.", True)
_change("unarchive", "Unarchived", "Show an archived model in lists again.", False)


def _show_models(service: Service, models: list[Model], output: Output, utc: bool) -> None:
    headers = ["ID", "Name", "Workspace ID", "Creation Time", "Last Updated Time", "Versions"]
    headers += ["Labels", "Metadata", "Description", "Archived"]
    rows = [
        [
            model.id,
            model.name,
            model.workspace_id,
            time_text(model.created, utc=utc),
            time_text(model.updated, utc=utc),
            len(service.reader.registry.versions(model.id)),
            ", ".join(model.labels),
            hparams_text(model.metadata) if model.metadata else "",
            model.description,
            model.archived,
        ]
        for model in models
    ]
    show(headers, rows, output, [record_json(model) for model in models])


def _show_versions(versions: list[ModelVersion], output: Output, utc: bool) -> None:
    headers = ["Version #", "Checkpoint UUID", "Creation Time", "Name", "Comment", "Notes"]
    rows = [
        [v.number, v.checkpoint_uuid, time_text(v.created, utc=utc), v.name, v.comment, v.notes]
        for v in versions
    ]
    show(headers, rows, output, [record_json(version) for version in versions])
