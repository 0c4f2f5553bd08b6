"""The noun; the other files of this folder add its verbs."""

from __future__ import annotations

import click

from determined.cli._commands.group import Group


@click.group(cls=Group)
def checkpoint() -> None:
    """Inspect, download, verify and delete checkpoints."""
