"""`det version`."""

from __future__ import annotations

import click

from determined.cli._present.tables import show_json


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def version(as_json: bool) -> None:
    """Show the versions of `det`, Python, torch and pydantic."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    from determined._version import __version__

    found = {"det": __version__, "python": platform.python_version()}
    for package in ("torch", "pydantic"):
        try:
            found[package] = version_of(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    if as_json:
        show_json(found)
        return
    for name, number in found.items():
        click.echo(f"{name:10} {number}")
