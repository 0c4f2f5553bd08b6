"""Delete checkpoints: whole ones, some of their files, or what policies do not keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from determined.cli._commands.options import (
    EXPERIMENT_ID,
    TEXT,
    UUIDS,
    confirm,
    uuid_list,
    yes_option,
)
from determined.cli._commands.platform import platform
from determined.cli._present.records import show_checkpoints
from determined.cli._present.tables import (
    Output,
    counted,
    output_options,
    show,
    size_text,
)
from determined.cli.checkpoint.noun import checkpoint

if TYPE_CHECKING:
    from determined.platform.service import Service
    from determined.store import Checkpoint, RatedCheckpoint


@checkpoint.verb("delete")
@click.argument("uuids", type=UUIDS, metavar="UUID[,UUID...]")
@yes_option
def delete(uuids: str, yes: bool) -> None:
    """Delete checkpoints: all of the given ones, or none.

    Refused for versions of models, and for checkpoints from which a trial would continue. The
    records stay, marked as deleted.
    """
    wanted = uuid_list(uuids)
    with platform(wake=False) as service:
        found = list({c.uuid: c for c in map(service.checkpoint, wanted)}.values())
        size = size_text(sum(row.size for row in found))
        what = f"{counted(len(found), 'checkpoint')} ({size})"
        confirm(f"Delete {what}? That cannot be undone.", yes)
        service.delete_checkpoints(wanted)
        click.echo(f"Deleted {what}")


@checkpoint.verb("rm")
@click.argument("uuids", type=UUIDS, metavar="UUID[,UUID...]")
@click.option(
    "--glob",
    "globs",
    multiple=True,
    type=TEXT,
    metavar="PATTERN",
    help="Delete the files that match, such as `*.bin` or `optimizer/**`.",
)
@yes_option
def remove(uuids: str, globs: tuple[str, ...], yes: bool) -> None:
    """Delete files of checkpoints that match patterns of Python's glob.

    Without --glob nothing is deleted: the records are updated to match the files in the storage.
    """
    from determined.platform.service import RefusedError, check_glob

    wanted = uuid_list(uuids)
    for pattern in globs:
        try:
            check_glob(pattern)
        except RefusedError as error:
            raise click.UsageError(f"--glob: {error}") from None
    with platform(wake=False) as service:
        found = list({c.uuid: c for c in map(service.checkpoint, wanted)}.values())
        if globs:
            _confirm_files(found, globs, yes)
        for row in service.delete_checkpoints(wanted, globs):
            files = counted(len([n for n in row.resources if not n.endswith("/")]), "file")
            click.echo(f"{row.uuid} is {row.state}: {files}, {size_text(row.size)}")


def _confirm_files(found: list[Checkpoint], globs: tuple[str, ...], yes: bool) -> None:
    """Show which files will go, and ask."""
    from determined.storage import remaining

    rows: list[list[object]] = []
    for row in found:
        left = remaining(row.resources, globs)
        gone = [name for name in sorted(row.resources) if name not in left]
        rows += [[row.uuid, name, size_text(row.resources[name])] for name in gone]
    if not rows:
        click.echo("No recorded file matches.")
        return
    show(["UUID", "File", "Size"], rows)
    confirm(f"Delete {counted(len(rows), 'file')}?", yes)


@checkpoint.verb("gc")
@click.argument("experiment_ids", nargs=-1, type=EXPERIMENT_ID, metavar="[EXPERIMENT_ID]...")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@yes_option
@output_options
def collect(experiment_ids: tuple[int, ...], dry_run: bool, yes: bool, output: Output) -> None:
    """Delete checkpoints that the retention policy of their experiment does not keep.

    Applies to all experiments unless some are given. It also happens automatically when an
    experiment ends, or continuously with `checkpoint_storage.gc: continuous`.
    """
    if output != "table" and not (dry_run or yes):
        raise click.UsageError("--csv and --json need --dry-run or --yes.")
    with platform(wake=False) as service:
        garbage = _garbage(service, experiment_ids)
        if garbage or output != "table":
            show_checkpoints(garbage, output, with_experiment=True)
        else:
            click.echo("Nothing to delete.")
        if dry_run or not garbage:
            return
        size = size_text(sum(item.checkpoint.size for item in garbage))
        what = f"{counted(len(garbage), 'checkpoint')} ({size})"
        confirm(f"Delete {what}?", yes)
        numbers = {item.checkpoint.experiment_id for item in garbage}
        service.collect_garbage(sorted(number for number in numbers if number is not None))
        if output == "table":
            click.echo(f"Deleted {what}")


def _garbage(service: Service, experiment_ids: tuple[int, ...]) -> list[RatedCheckpoint]:
    if experiment_ids or not service.has_store:
        numbers = [service.experiment(number).id for number in dict.fromkeys(experiment_ids)]
    else:
        found = service.reader.experiments().rows
        numbers = [
            record.id
            for record in found
            if not record.unmanaged and not record.state.startswith("DELET")
        ]
    return [item for number in numbers for item in service.garbage(number)]
