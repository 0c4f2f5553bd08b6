"""`det export`: experiments as files for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from determined.cli._commands.group import Group
from determined.cli._commands.platform import platform
from determined.errors import NotFoundError, RefusedError


@click.group(cls=Group)
def export() -> None:
    """Write experiments to CSV or Parquet files.

    FOLDER gets two tables: `trials`, with hyperparameters and best values, and `metrics`, with one
    row for each reported number.
    """


@export.verb("csv")
@click.argument("what", metavar="EXPERIMENT|PROJECT")
@click.argument("folder", type=click.Path(path_type=Path))
def csv(what: str, folder: Path) -> None:
    """Write an experiment, or all of a project (WORKSPACE/PROJECT), as CSV files."""
    _export(what, folder, "csv")


@export.verb("parquet")
@click.argument("what", metavar="EXPERIMENT|PROJECT")
@click.argument("folder", type=click.Path(path_type=Path))
def parquet(what: str, folder: Path) -> None:
    """Write an experiment, or all of a project (WORKSPACE/PROJECT), as Parquet files."""
    _export(what, folder, "parquet")


def _export(what: str, folder: Path, form: str) -> None:
    from determined.platform.rules.unmanaged import project_of
    from determined.platform.service.workspaces import Workspaces
    from determined.platform.trackers.export import export as write
    from determined.store import ExperimentFilter

    with platform() as service:
        if not service.has_store:
            raise RefusedError("There are no experiments yet: there is nothing to export.")
        if what.isascii() and what.isdigit() and len(what) < 19:
            experiment = service.reader.experiment(int(what))
            if experiment is None:
                raise NotFoundError(
                    f"There is no experiment {what}. `det experiment list` shows all."
                )
            found = [experiment]
        else:
            project = Workspaces(service).project(*project_of(what))
            wanted = ExperimentFilter(project_id=project.id, archived=None)
            found = sorted(service.reader.experiments(wanted).rows, key=lambda one: one.id)
        write(service.reader, found, folder, form)
    click.echo(f"Wrote {len(found)} experiment{'s'[: len(found) != 1]} to {folder}")
