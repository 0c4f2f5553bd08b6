"""`det checkpoint`: describe and download checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from determined.cli._door import platform
from determined.cli._group import Group
from determined.cli._options import utc_option
from determined.cli._tables import (
    Output,
    hparams_text,
    output_options,
    show,
    size_text,
    time_text,
)

if TYPE_CHECKING:
    from determined.platform.service import Service
    from determined.store import Checkpoint


@click.group(cls=Group)
def checkpoint() -> None:
    """Look at checkpoints and download them."""


@checkpoint.verb("describe")
@click.argument("uuid", metavar="UUID")
@utc_option
@output_options
def describe(uuid: str, utc: bool, output: Output) -> None:
    """Show a checkpoint, its files and its metadata."""
    from determined.cli.experiment.listing import checkpoint_json

    with platform() as service:
        found = service.checkpoint(uuid)
        data = checkpoint_json(found) if output == "json" else None
        _show(service, found, output, utc, data)


@checkpoint.verb("download")
@click.argument("uuid", metavar="UUID")
@click.option(
    "-o",
    "--output-dir",
    type=click.Path(path_type=Path),
    help="Where to put it; default: checkpoints/UUID.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the path.")
@click.option(
    "--mode",
    type=click.Choice(["direct", "master", "auto"]),
    default="auto",
    hidden=True,
    help="Accepted and ignored: there is one way to the storage.",
)
def download(uuid: str, output_dir: Path | None, quiet: bool, mode: str) -> None:
    """Download a checkpoint, or complete a download that was cut short."""
    with platform() as service:
        found = service.checkpoint(uuid)
        target = service.download(found, output_dir or Path("checkpoints", uuid))
        click.echo(str(target) if quiet else f"Local checkpoint path:\n{target}\n")
        if not quiet:
            _show(service, found, "table", False)


def _show(
    service: Service, found: Checkpoint, output: Output, utc: bool, data: object = None
) -> None:
    from determined.platform.outcome import folder_of

    rows: list[list[object]] = [
        ["Experiment ID", found.experiment_id],
        ["Trial ID", found.trial_id],
        ["# of Batches", found.steps_completed],
        ["Report Time", time_text(found.report_time, utc=utc)],
        ["Checkpoint UUID", found.uuid],
        ["State", found.state],
        ["Validation Metrics", hparams_text(service.metrics_at(found))],
        ["Metadata", hparams_text(found.metadata)],
        ["Size", size_text(found.size)],
        ["Resources", ", ".join(n for n in sorted(found.resources) if not n.endswith("/"))],
    ]
    if found.experiment_id is not None:
        folder = folder_of(found, service.experiment(found.experiment_id))
        rows.append(["Path", "" if folder is None else str(folder)])
    show(["Name", "Value"], rows, output, data)
