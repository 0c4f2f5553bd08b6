"""`det project`: where experiments belong."""

from __future__ import annotations

import click

from determined.cli._group import Group
from determined.cli._options import utc_option, yes_option
from determined.cli._tables import Output, output_options, printable
from determined.cli.workspace import show_projects, workspaces


@click.group(cls=Group, default="list")
def project() -> None:
    """Group experiments within a workspace."""


@project.verb("list", aliases=["ls"])
@click.argument("workspace", required=False)
@utc_option
@output_options
def list_projects(workspace: str | None, utc: bool, output: Output) -> None:
    """List the projects of a workspace, or all."""
    with workspaces() as spaces:
        wanted = None if workspace is None else spaces.named(workspace).id
        show_projects(spaces, spaces.projects(wanted), output, utc)


@project.verb("create")
@click.argument("workspace")
@click.argument("name")
@click.option("--description", default="", help="What it is for.")
@output_options
def create(workspace: str, name: str, description: str, output: Output) -> None:
    """Create a project in a workspace."""
    with workspaces() as spaces:
        made = spaces.create_project(spaces.named(workspace).id, name, description)
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
