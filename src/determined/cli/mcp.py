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

    if importlib.util.find_spec("mcp") is None:
        raise click.ClickException(
            "this needs the package mcp: `pip install 'determined-pytorch[mcp]'`."
        )
    from determined.mcp.server import serve
    from determined.platform.homes.home import Home

    serve(Home.find(), allow_delete=allow_delete)
