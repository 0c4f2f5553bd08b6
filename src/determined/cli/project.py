"""`det project`: where experiments belong."""

from __future__ import annotations

import click

from determined.cli._commands.group import Group
from determined.cli._commands.options import (
    order_options,
    page_of,
    paging_options,
    utc_option,
    yes_option,
)
from determined.cli._present.layout import printable
from determined.cli._present.tables import Output, output_options
from determined.cli.experiment.listing import ORDERS, show_experiments
from determined.cli.workspace import in_order, show_projects, workspaces


@click.group(cls=Group, default="list")
def project() -> None:
    """Group experiments within a workspace."""


@project.verb("list", aliases=["ls"])
@click.argument("workspace", required=False)
@order_options(("id", "name", "description"), default="id", descending=False)
@paging_options(200)
@utc_option
@output_options
def list_projects(
    workspace: str | None,
    sort_by: str,
    order_by: str,
    limit: int,
    offset: int,
    pages: str,
    utc: bool,
    output: Output,
) -> None:
    """List the projects of a workspace, or all."""
    with workspaces() as spaces:
        wanted = None if workspace is None else spaces.named(workspace).id
        found = in_order(spaces.projects(wanted), sort_by, order_by)
        show_projects(spaces, page_of(found, limit, offset, pages), output, utc)


@project.verb("list-experiments")
@click.argument("workspace")
@click.argument("name")
@click.option("-a", "--all", "show_all", is_flag=True, help="Include archived experiments.")
@order_options(ORDERS, default="id")
@paging_options(200)
@utc_option
@output_options
def list_experiments(
    workspace: str,
    name: str,
    show_all: bool,
    sort_by: str,
    order_by: str,
    limit: int,
    offset: int,
    pages: str,
    utc: bool,
    output: Output,
) -> None:
    """List the experiments of a project, newest first."""
    from determined.store import ExperimentFilter, Order

    with workspaces() as spaces:
        project_id = spaces.project(workspace, name).id
    wanted = ExperimentFilter(project_id=project_id, archived=None if show_all else False)
    order = Order(sort_by, descending=order_by == "desc")
    show_experiments(wanted, order, (limit, offset, pages), output, utc, show_all)


@project.verb("edit")
@click.argument("workspace")
@click.argument("name")
@click.option("--new_name", "--new-name", metavar="NAME", help="Its new name.")
@click.option("--description", help="What it is for.")
@click.option("--key", help="A short name of it.")
@output_options
def edit(
    workspace: str,
    name: str,
    new_name: str | None,
    description: str | None,
    key: str | None,
    output: Output,
) -> None:
    """Change the name, the description or the key of a project."""
    given = {"name": new_name, "description": description, "key": key}
    changes = {field: value for field, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("Give --new_name, --description or --key.")
    with workspaces() as spaces:
        found = spaces.project(workspace, name)
        spaces.change_project(found.id, **changes)
        show_projects(spaces, [spaces.project_of_id(found.id)], output, utc=False)


@project.verb("create")
@click.argument("workspace")
@click.argument("name")
@click.option("--description", default="", help="What it is for.")
@click.option("--key", help="A short name of it.")
@output_options
def create(workspace: str, name: str, description: str, key: str | None, output: Output) -> None:
    """Create a project in a workspace."""
    with workspaces() as spaces:
        made = spaces.create_project(spaces.named(workspace).id, name, description)
        if key is not None:
            spaces.change_project(made.id, key=key)
            made = spaces.project_of_id(made.id)
        show_projects(spaces, [made], output, utc=False)


@project.verb("describe")
@click.argument("workspace")
@click.argument("name")
@utc_option
@output_options
def describe(workspace: str, name: str, utc: bool, output: Output) -> None:
    """Show a project and its notes."""
    with workspaces() as spaces:
        found = spaces.project(workspace, name)
        show_projects(spaces, [found], output, utc)
        for note in found.notes if output == "table" else ():
            click.echo(f"\n{printable(note['name'])}:")
            for line in note["contents"].splitlines():
                click.echo(f"  {printable(line)}")


@project.verb("delete")
@click.argument("workspace")
@click.argument("name")
@yes_option
def delete(workspace: str, name: str, yes: bool) -> None:
    """Delete an empty project."""
    with workspaces() as spaces:
        found = spaces.project(workspace, name)
        if yes or click.confirm(f"Remove the project {printable(name)}?", err=True):
            spaces.delete_project(found.id)
            click.echo(f"Removed project {printable(name)}")


def _change(verb: str, done: str, help_text: str, archived: bool) -> None:
    @project.verb(verb, help=help_text)
    @click.argument("workspace")
    @click.argument("name")
    def command(workspace: str, name: str) -> None:
        with workspaces() as spaces:
            spaces.change_project(spaces.project(workspace, name).id, archived=archived)
            click.echo(f"{done} project {printable(name)}")


_change("archive", "Archived", "Archive a project: it takes no new experiments.", True)
_change("unarchive", "Unarchived", "Use an archived project again.", False)
