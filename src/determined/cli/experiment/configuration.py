"""Configurations: check a file, show the schema; configuration and code of an experiment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from determined._os.printable import printable
from determined.cli._commands.errors import ERROR, OK
from determined.cli._commands.options import EXPERIMENT_ID
from determined.cli._commands.platform import platform
from determined.cli._present.tables import show_json
from determined.cli.experiment.noun import experiment

if TYPE_CHECKING:
    from determined.config import Loaded


@experiment.verb("validate")
@click.argument("config_file", metavar="CONFIG")
@click.option("--config", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one value.")
@click.option("--json", "as_json", is_flag=True, help="Print problems and result as JSON.")
def validate(config_file: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Check a configuration file, and show it with every default filled in.

    CONFIG is a YAML file, or `-` for standard input. The exit code is 0 if an experiment could be
    created from it, else 1; problems and notes go to standard error. Secrets are masked.
    """
    from determined.config import masked
    from determined.errors import ConfigurationError

    try:
        loaded = load_config(config_file, overrides)
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
    _show_yaml(effective)
    return OK


@experiment.verb("schema")
def schema() -> None:
    """Print the JSON Schema of configuration files, for editors.

    For example: `det experiment schema > experiment.schema.json`, and at the top of a file
    `# yaml-language-server: $schema=experiment.schema.json`.
    """
    from determined import config

    show_json(config.schema())


@experiment.verb("config")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--show-secrets",
    is_flag=True,
    help="Show secrets too, so that the experiment can be created again from it.",
)
def config(experiment_id: int, as_json: bool, show_secrets: bool) -> None:
    """Show the whole configuration of an experiment as YAML; secrets are masked.

    Secrets are the values of environment variables, credentials of storages, passwords in URLs, and
    texts of hyperparameters whose name has the word key, secret, token or password.
    """
    from determined.config import masked

    with platform() as service:
        stored = service.experiment(experiment_id).config
    content = stored if show_secrets else masked(stored)
    if as_json:
        show_json(content)
    else:
        _show_yaml(content)


@experiment.verb("download-model-def")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.option(
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where to put it; default: here.",
)
def download_model_def(experiment_id: int, output_dir: Path) -> None:
    """Write the code of an experiment to experiment_ID_model_def.tgz."""
    with platform() as service:
        target = output_dir / f"experiment_{experiment_id}_model_def.tgz"
        service.write_code(experiment_id, target)
        click.echo(f"Wrote {target}")


def _show_yaml(content: Mapping[str, Any]) -> None:
    from determined.config import to_yaml

    text = to_yaml(content)
    click.echo(printable(text, keep="\n") if sys.stdout.isatty() else text, nl=False)


def load_config(
    config_file: str, overrides: tuple[str, ...], template: str | None = None
) -> Loaded:
    """Load the file that a command names, `-` for standard input."""
    from determined.config import load, load_file
    from determined.platform.service.completion import completion
    from determined.platform.service.search_checks import check_search

    if config_file == "-":
        text = sys.stdin.buffer.read()
        loaded = load(text, "standard input", overrides, completion(template))
    else:
        loaded = load_file(config_file, overrides, completion(template))
    check_search(loaded, config_file)
    return _checked_for_cluster(loaded, config_file)


def _checked_for_cluster(loaded: Loaded, source: str) -> Loaded:
    """Raise if the cluster of the home cannot run it; with notes on how that will."""
    from dataclasses import replace

    from determined.errors import ConfigurationError
    from determined.platform.homes.home import Home
    from determined.platform.service.creation_checks import cluster_notes

    found = [replace(p, source=source) for p in cluster_notes(Home.find(), loaded.configuration)]
    if errors := [problem for problem in found if problem.severity == "error"]:
        raise ConfigurationError(source, errors)
    return replace(loaded, notes=(*loaded.notes, *found))
