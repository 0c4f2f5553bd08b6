"""`det mcp`: experiments for coding assistants."""

from __future__ import annotations

import click

from determined.cli._commands.group import Command


@click.command(cls=Command)
@click.option(
    "--allow-delete",
    is_flag=True,
    help="Offer tools that delete experiments and checkpoints, too.",
)
def mcp(allow_delete: bool) -> None:
    """Serve the Model Context Protocol over standard input and output.

    For coding assistants, which start this command themselves: create, follow, compare, explain and
    end experiments, read their metrics and logs, search the documentation. It acts as you, in the
    home that `det` uses.
    """
    import importlib.util
    import sys

    if importlib.util.find_spec("mcp") is None:
        raise click.ClickException(
            "this needs the package mcp: `pip install 'determined-pytorch[mcp]'`."
        )
    if sys.stdin is None or sys.stdout is None:  # how Python shows that one was closed
        raise click.ClickException(
            "this talks over standard input and output, and one of them is closed: let an "
            "assistant start it, see docs/assistants.md."
        )
    from determined.mcp.server import serve
    from determined.platform.homes.home import Home

    serve(Home.find(), allow_delete=allow_delete)
