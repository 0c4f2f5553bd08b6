"""`det user`: one user, who need not log in."""

from __future__ import annotations

import getpass

import click

from determined.cli._commands.absent import absent
from determined.cli._commands.group import Group
from determined.cli._commands.options import without_effect
from determined.cli._present.tables import Output, output_options, show


@click.group(cls=Group, default="whoami")
def user() -> None:
    """Show the current user; there are no other accounts."""


@user.verb("whoami")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def whoami(as_json: bool) -> None:
    """Show the name under which your experiments are created."""
    from determined.cli._present.tables import show_json

    name = getpass.getuser()
    if as_json:
        show_json({"username": name})
    else:
        click.echo(f"You are {name}")


@user.verb("list", aliases=["ls"])
@without_effect("there is one user", "-a/--all", is_flag=True)
@output_options
def list_users(output: Output) -> None:
    """List the one user."""
    show(["Username", "Active", "Admin"], [[getpass.getuser(), True, True]], output)


@user.verb("login")
@click.argument("username", required=False)
@without_effect("no password is needed", "-p/--password")
def login(username: str | None) -> None:
    """Do nothing, for scripts that begin with it."""
    click.echo("There is no server to log in to: everything works without it.")


@user.verb("logout")
@click.argument("username", required=False)
@without_effect("there is no server to log out from", "-a/--all", is_flag=True)
def logout(username: str | None) -> None:
    """Do nothing, for scripts that end with it."""
    click.echo("There is no server to log out from.")


absent(
    user,
    "There is only one user: your account on this machine. Nothing can be changed here.",
    *("activate", "change-password", "create", "deactivate", "edit", "link-with-agent-user"),
    *("rename",),
)
