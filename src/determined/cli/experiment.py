"""`det experiment`: everything that is done to experiments."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from determined.cli._continue import continue_command
from determined.cli._errors import ERROR, OK
from determined.cli._group import Group
from determined.cli._tables import show_json

if TYPE_CHECKING:
    from determined.config import Loaded


@click.group(cls=Group)
def experiment() -> None:
    """Create, check and follow experiments."""


experiment.add_command(continue_command)


@experiment.verb("validate")
@click.argument("config_file", metavar="CONFIG")
@click.option("--config", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one value.")
@click.option("--json", "as_json", is_flag=True, help="Print problems and result as JSON.")
def validate(config_file: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Check a configuration file, and show it with every default filled in.

    CONFIG is a YAML file, or `-` for standard input. The exit code is 0 if an experiment could be
    created from it, else 1; problems and notes go to standard error. Secrets are masked.
    """
    from determined.config import masked, to_yaml
    from determined.errors import ConfigurationError

    try:
        loaded = _load(config_file, overrides)
    except ConfigurationError as error:
        if not as_json:
            raise
        show_json(
            {
                "valid": False,
                "problems": [problem.to_json() for problem in error.problems],
                "effective": None,
            }
        )
        return ERROR
    effective = masked(loaded.effective)
    if as_json:
        problems = [note.to_json() for note in loaded.notes]
        show_json({"valid": True, "problems": problems, "effective": effective})
        return OK
    for note in loaded.notes:
        click.echo(note.render(), err=True)
    click.echo(to_yaml(effective), nl=False)
    return OK


@experiment.verb("schema")
def schema() -> None:
    """Print the JSON Schema of configuration files, for editors.

    For example: `det experiment schema > experiment.schema.json`, and at the top of a file
    `# yaml-language-server: $schema=experiment.schema.json`.
    """
    from determined import config

    show_json(config.schema())


def _load(config_file: str, overrides: tuple[str, ...]) -> Loaded:
    from determined.cli._completion import completion
    from determined.config import load, load_file

    if config_file == "-":
        return load(sys.stdin.buffer.read(), "standard input", overrides, completion())
    return load_file(config_file, overrides, completion())
