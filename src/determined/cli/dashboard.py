"""`det dashboard`: look at experiments in a browser."""

from __future__ import annotations

import click

from determined.cli._commands.group import Command
from determined.cli._commands.platform import platform


@click.command(cls=Command)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; 0.0.0.0 lets other machines in.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on; default: the first free one from 8090 on.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def dashboard(host: str, port: int | None, no_browser: bool) -> None:
    """Show experiments live in a browser.

    The printed address contains a token that allows everything you can do with `det`: do not share
    it.
    """
    import importlib.util
    import sys

    from determined.platform.homes.home import Home

    missing = [n for n in ("starlette", "uvicorn") if importlib.util.find_spec(n) is None]
    if missing:
        raise click.ClickException(
            f"the dashboard needs {', '.join(missing)}: "
            "`pip install 'determined-pytorch[dashboard]'`."
        )
    from determined.dashboard.server.serve import is_loopback, serve

    home = Home.find()
    with platform(wake=False) as service:
        if service.has_store:
            _ = service.reader  # a store of an older version is brought up to date

    def tell(address: str, once: str) -> None:
        click.echo(f"Dashboard of {home.path}:\n\n    {address}\n")
        if not is_loopback(host):
            click.echo(
                f"It listens on {host}: any machine that can reach this one can connect. Anyone "
                "with the token can see all experiments, and pause, kill and archive them. The "
                "connection is not encrypted, so others on the network may read it: it is safer "
                "to leave out --host and use `ssh -L`."
            )
        click.echo("Press Ctrl-C to stop it; experiments keep running.")
        sys.stdout.flush()
        if not no_browser:
            import webbrowser

            webbrowser.open(once)

    serve(home, host, port, tell)
