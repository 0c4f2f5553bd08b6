"""`det preview-search`: what a search will do and cost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from determined.cli._commands.group import Command
from determined.cli._present.layout import table
from determined.cli._present.tables import percent, show_json

if TYPE_CHECKING:
    from determined.platform.search.simulation.preview import Preview


@click.command("preview-search", cls=Command)
@click.argument("config_file", metavar="CONFIG")
@click.option("--config", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one value.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def preview_search(config_file: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show what a search will do, and its maximum cost.

    CONFIG is the YAML file of an experiment, or `-` for standard input. Nothing is started. The
    table shows how many trials are expected to end at which time; the simulated estimate comes
    from a search on synthetic learning curves.
    """
    from determined.config import Completion, load, load_file
    from determined.platform.search.simulation.preview import preview_of
    from determined.platform.service.completion import count_slots

    # Neither where checkpoints go nor how to start matters here.
    storage = {"type": "shared_fs", "host_path": "/"}
    completion = Completion(managed=False, checkpoint_storage=storage, count_slots=count_slots)
    if config_file == "-":
        text = sys.stdin.buffer.read()
        loaded = load(text, "standard input", overrides, completion)
    else:
        loaded = load_file(config_file, overrides, completion)
    for note in loaded.notes:
        if note.path[:1] in (("searcher",), ("hyperparameters",)):
            click.echo(note.render(), err=True)
    try:
        found, unit = preview_of(loaded.effective)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        show_json(_as_data(found, unit))
    else:
        _show(found, unit)


def _show(found: Preview, unit: str) -> None:
    if found.ends:
        rows = [[count, f"{units} {unit}"] for units, count in found.ends.items()]
        click.echo(table(["Trials", "Train for"], rows))
    else:
        click.echo(found.lines()[0])
    click.echo()
    if len(found.brackets) > 1:
        for i, bracket in enumerate(found.brackets, start=1):
            rungs = ", ".join(map(str, bracket.units))
            click.echo(
                f"Bracket {i}: {bracket.max_trials} trials, {bracket.max_concurrent} at a time, "
                f"rungs at {rungs} {unit}"
            )
    if found.most_units is not None and found.num_trials is not None:
        click.echo(f"At most:   {_cost(found.num_trials, found.most_units, unit)}")
    if found.ends and found.predicted_units is not None:
        share = percent(found.predicted_share)
        click.echo(f"Predicted: {found.predicted_units:,} {unit}, {share} of full training")
    if (estimate := found.estimate) is not None:
        click.echo(
            f"Simulated: {estimate.units:,} {unit} ({estimate.least:,} to {estimate.most:,}), "
            f"{percent(estimate.share)} of full training; {estimate.full_trials} trials train to "
            "the end"
        )
    for note in found.notes:
        click.echo(note)
    for warning in found.warnings:
        click.echo(f"Warning: {warning}", err=True)


def _cost(trials: int, units: int, unit: str) -> str:
    return f"{trials} trials, {units:,} {unit} if all of them train to the end"


def _as_data(found: Preview, unit: str) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(found) | {"unit": unit, "predicted_share": found.predicted_share}
