"""`det experiment download`: the best checkpoints."""

from __future__ import annotations

from pathlib import Path

import click

from determined.cli._commands.downloads import best_checkpoints, download_options
from determined.cli._commands.options import EXPERIMENT_ID, POSITIVE
from determined.cli._commands.platform import platform
from determined.cli._present.records import checkpoint_json
from determined.cli._present.tables import hparams_text, show, show_json
from determined.cli.experiment.noun import experiment


@experiment.verb("download")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.option("--top-n", type=POSITIVE, default=1, show_default=True, metavar="N", help="How many.")
@download_options("checkpoints/UUID")
def download(
    experiment_id: int,
    top_n: int,
    output_dir: Path | None,
    sort_by: str | None,
    smaller_is_better: bool | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Download the best checkpoints of an experiment, each into a folder named by its UUID."""
    from determined.store import CheckpointFilter

    with platform() as service:
        where = CheckpointFilter(experiment_id, states=["COMPLETED"])
        found = best_checkpoints(service, where, experiment_id, sort_by, smaller_is_better)
        rows: list[list[object]] = []
        data = []
        for item in found[:top_n]:
            checkpoint = item.checkpoint
            target = (output_dir or Path("checkpoints")) / checkpoint.uuid
            path = service.download(checkpoint, target)
            if quiet and not as_json:
                click.echo(str(path))
            data.append({**checkpoint_json(checkpoint), "path": str(path)})
            metrics = hparams_text(item.metrics)
            rows.append([checkpoint.trial_id, checkpoint.steps_completed, metrics, str(path)])
        if as_json:
            show_json(data)
        elif not quiet:
            show(["Trial ID", "# of Batches", "Validation Metrics", "Path"], rows, in_full=True)
