"""`det workspace`: where projects belong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click

from determined.cli._commands.absent import absent
from determined.cli._commands.group import Group
from determined.cli._commands.options import (
    order_options,
    page_of,
    paging_options,
    utc_option,
    without_effect,
    yes_option,
)
from determined.cli._commands.platform import platform
from determined.cli._present.layout import printable
from determined.cli._present.records import record_json
from determined.cli._present.tables import Output, output_options, show, show_json, time_text

if TYPE_CHECKING:
    from determined.platform.service.workspaces import Workspaces
    from determined.store import Project, Workspace


_Record = TypeVar("_Record")


@click.group(cls=Group, default="list")
def workspace() -> None:
    """Organize projects in workspaces."""


@contextmanager
def workspaces() -> Iterator[Workspaces]:
    """The workspaces of the user's home."""
    from determined.platform.service.workspaces import Workspaces

    with platform(wake=False) as service:
        yield Workspaces(service)


@workspace.verb("list", aliases=["ls"])
@order_options(("id", "name"), default="id", descending=False)
@paging_options(200)
@utc_option
@output_options
def list_workspaces(
    sort_by: str, order_by: str, limit: int, offset: int, pages: str, utc: bool, output: Output
) -> None:
    """List the workspaces."""
    with workspaces() as spaces:
        found = in_order(spaces.all(), sort_by, order_by)
        shown = page_of(found, limit, offset, pages)
        counts = {space.id: len(spaces.projects(space.id)) for space in shown}
        _show(shown, counts, output, utc)


_ONE_USER = without_effect(
    "trials run as you", "--agent-uid", "--agent-gid", "--agent-user", "--agent-group"
)
_OF_CLUSTERS = without_effect(
    "there is no cluster to divide; configurations name a storage and slots",
    "--checkpoint-storage-config",
    "--checkpoint-storage-config-file",
    "--default-compute-pool",
    "--default-aux-pool",
    "--cluster-name",
    "--namespace",
    "--resource-quota",
)


@workspace.verb("create")
@click.argument("name")
@_ONE_USER
@_OF_CLUSTERS
@without_effect("there is no Kubernetes", "--auto-create-namespace", is_flag=True)
@output_options
def create(name: str, output: Output) -> None:
    """Create a workspace."""
    with workspaces() as spaces:
        made = spaces.create(name)
        _show([made], {made.id: 0}, output, utc=False)


@workspace.verb("describe")
@click.argument("name")
@utc_option
@output_options
def describe(name: str, utc: bool, output: Output) -> None:
    """Show a workspace and its projects."""
    with workspaces() as spaces:
        found = spaces.named(name)
        projects = spaces.projects(found.id)
        if output == "json":
            show_json({**record_json(found), "projects": [record_json(p) for p in projects]})
            return
        _show([found], {found.id: len(projects)}, output, utc)
        click.echo()
        show_projects(spaces, projects, output, utc)


@workspace.verb("edit")
@click.argument("name")
@click.option("--name", "new_name", metavar="NAME", help="Its new name.")
@_ONE_USER
@_OF_CLUSTERS
@output_options
def edit(name: str, new_name: str | None, output: Output) -> None:
    """Rename a workspace."""
    if new_name is None:
        raise click.UsageError("Give a new name with --name: nothing else can be changed.")
    with workspaces() as spaces:
        found = spaces.named(name)
        spaces.change(found.id, name=new_name)
        _show([spaces.of_id(found.id)], {found.id: len(spaces.projects(found.id))}, output, False)


@workspace.verb("list-projects")
@click.argument("name")
@order_options(("id", "name", "description"), default="id", descending=False)
@paging_options(200)
@utc_option
@output_options
def list_projects(
    name: str,
    sort_by: str,
    order_by: str,
    limit: int,
    offset: int,
    pages: str,
    utc: bool,
    output: Output,
) -> None:
    """List the projects of a workspace."""
    with workspaces() as spaces:
        found = in_order(spaces.projects(spaces.named(name).id), sort_by, order_by)
        show_projects(spaces, page_of(found, limit, offset, pages), output, utc)


@workspace.verb("delete")
@click.argument("name")
@yes_option
def delete(name: str, yes: bool) -> None:
    """Delete an empty workspace."""
    with workspaces() as spaces:
        found = spaces.named(name)
        if yes or click.confirm(f"Remove the workspace {printable(name)}?", err=True):
            spaces.delete(found.id)
            click.echo(f"Removed workspace {printable(name)}")


def _change(verb: str, done: str, help_text: str, archived: bool) -> None:
    @workspace.verb(verb, help=help_text)
    @click.argument("name")
    def command(name: str) -> None:
        with workspaces() as spaces:
            spaces.change(spaces.named(name).id, archived=archived)
            click.echo(f"{done} workspace {printable(name)}")


_change(
    "archive", "Archived", "Archive a workspace: it takes no new projects or experiments.", True
)
_change("unarchive", "Unarchived", "Use an archived workspace again.", False)


absent(
    workspace,
    "There is only one user, who may do everything: `det user whoami`.",
    "list-members",
)
absent(
    workspace,
    "All slots of this machine are one pool: `det slot list` shows them.",
    *("bindings", "list-pools", "resource-quota"),
)


def in_order(found: Sequence[_Record], sort_by: str, order_by: str) -> list[_Record]:
    """The records, sorted by one of their fields."""
    return sorted(found, key=lambda one: getattr(one, sort_by), reverse=order_by == "desc")


def _show(found: Sequence[Workspace], counts: dict[int, int], output: Output, utc: bool) -> None:
    headers = ["ID", "Name", "Projects", "Owner", "Creation Time", "Archived"]
    rows = [
        [w.id, w.name, counts[w.id], w.owner, time_text(w.created or None, utc=utc), w.archived]
        for w in found
    ]
    show(headers, rows, output, [record_json(w) | {"projects": counts[w.id]} for w in found])


def show_projects(
    spaces: Workspaces, projects: Sequence[Project], output: Output, utc: bool
) -> None:
    """Print a table of projects."""
    headers = ["ID", "Name", "Description", "Experiments", "Active", "Owner", "Creation Time"]
    counts = {project.id: spaces.counts(project.id) for project in projects}
    rows = [
        [
            project.id,
            project.name,
            project.description,
            *counts[project.id],
            project.owner,
            time_text(project.created or None, utc=utc),
            project.archived,
        ]
        for project in projects
    ]
    data = [
        record_json(p) | {"n_experiments": counts[p.id][0], "n_active_experiments": counts[p.id][1]}
        for p in projects
    ]
    show([*headers, "Archived"], rows, output, data)
