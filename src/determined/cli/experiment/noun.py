"""The noun; the other files of this folder add its verbs."""

from __future__ import annotations

import click

from determined.cli._commands.group import Group


@click.group(cls=Group, default="list")
def experiment() -> None:
    """Create, check and follow experiments."""
