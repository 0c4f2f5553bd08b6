"""Inspect checkpoints: list, describe, download, verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from determined.cli._commands.errors import ERROR, OK, complain
from determined.cli._commands.options import (
    COUNT,
    EXPERIMENT_ID,
    TRIAL_ID,
    UUIDS,
    json_option,
    page_of,
    paging_options,
    utc_option,
    uuid_list,
)
from determined.cli._commands.platform import platform
from determined.cli._present.layout import printable
from determined.cli._present.records import checkpoint_json, show_checkpoints
from determined.cli._present.tables import (
    Output,
    counted,
    hparams_text,
    output_options,
    show,
    show_json,
    size_text,
    time_text,
)
from determined.cli.checkpoint.noun import checkpoint

if TYPE_CHECKING:
    from determined.platform.service import Service
    from determined.store import Checkpoint

_STATES = ("COMPLETED", "PARTIALLY_DELETED", "DELETED", "ERROR", "ACTIVE")


@checkpoint.verb("list", aliases=["ls"])
@click.option("--experiment", "experiment_id", type=EXPERIMENT_ID, help="Only of this experiment.")
@click.option("--trial", "trial_id", type=TRIAL_ID, help="Only of this trial.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only in this state; default: those that have files.",
)
@click.option("--best", type=COUNT, metavar="N", help="Only the N best of the experiment.")
@paging_options(200)
@output_options
def list_checkpoints(
    experiment_id: int | None,
    trial_id: int | None,
    states: tuple[str, ...],
    best: int | None,
    limit: int,
    offset: int,
    pages: str,
    output: Output,
) -> None:
    """List checkpoints in the order of their reports, or the best ones of an experiment."""
    from determined.platform.queries.outcome import best_first
    from determined.store import CheckpointFilter

    if best is not None and experiment_id is None:
        raise click.UsageError(
            "--best needs --experiment: metrics of several experiments cannot be compared."
        )
    where = CheckpointFilter(experiment_id, trial_id, states or _STATES[:2])
    with platform() as service:
        if experiment_id is not None:
            record = service.experiment(experiment_id)
        if trial_id is not None:
            service.trial(trial_id)
        found = service.reader.rated_checkpoints(where) if service.has_store else []
        if best is not None:
            found = [item for item in found if item.value is not None]
            found = best_first(found, record.smaller_is_better)[:best]
    shown = page_of(found, limit, offset, pages)
    if output == "table" and not shown:
        click.echo("There are none.")
        return
    show_checkpoints(shown, output, with_experiment=experiment_id is None)


@checkpoint.verb("describe")
@click.argument("uuid", type=UUIDS, metavar="UUID")
@utc_option
@output_options
def describe(uuid: str, utc: bool, output: Output) -> None:
    """Show a checkpoint, its files and its metadata."""
    with platform() as service:
        found = service.checkpoint(uuid)
        data = checkpoint_json(found) if output == "json" else None
        _show(service, found, output, utc, data)


@checkpoint.verb("download")
@click.argument("uuid", type=UUIDS, metavar="UUID")
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
    help="No effect: there is only one way to the storage.",
)
@click.option(
    "--joined",
    is_flag=True,
    help="With all weights in `state_dict.pth`, also if it was saved with `save_frozen: once`.",
)
@json_option
def download(
    uuid: str, output_dir: Path | None, quiet: bool, mode: str, joined: bool, as_json: bool
) -> None:
    """Download a checkpoint, or complete an interrupted download."""
    with platform() as service:
        found = service.checkpoint(uuid)
        target = service.download(found, output_dir or Path("checkpoints", found.uuid))
        if joined:
            from determined.pytorch._checkpoint.joining import join_files

            join_files(target)
        if as_json:
            show_json({**checkpoint_json(found), "path": str(target)})
            return
        click.echo(str(target) if quiet else f"Local checkpoint path:\n{target}\n")
        if not quiet:
            _show(service, found, "table", False)


@checkpoint.verb("verify")
@click.argument("uuids", type=UUIDS, metavar="UUID[,UUID...]")
@output_options
def verify(uuids: str, output: Output) -> int:
    """Read every file of checkpoints and check it against its checksum.

    The exit code is 0 if all of them are intact, else 1.
    """
    with platform() as service:
        results = [service.verify(service.checkpoint(uuid)) for uuid in uuid_list(uuids)]
    rows: list[list[object]] = [
        [
            result.checkpoint.uuid,
            "damaged" if result.problem else "whole",
            len([name for name in result.checkpoint.resources if not name.endswith("/")]),
            size_text(result.checkpoint.size),
            "hashes" if result.has_hashes else "names and sizes",
            result.problem,
        ]
        for result in results
    ]
    headers = ["UUID", "Result", "Files", "Size", "Compared", "Problem"]
    show(headers, rows, output, in_full=True)
    damaged = sum(bool(result.problem) for result in results)
    if damaged:
        complain(f"{damaged} of {counted(len(results), 'checkpoint')} cannot be used")
    return ERROR if damaged else OK


def _show(
    service: Service, found: Checkpoint, output: Output, utc: bool, data: object = None
) -> None:
    from determined.platform.queries.outcome import folder_of

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
        rows.append(["Path", "" if folder is None else printable(folder)])
    show(["Name", "Value"], rows, output, data)
