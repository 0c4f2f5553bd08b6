"""`det import`: runs of other trackers become experiments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from determined._os.printable import printable
from determined.cli._commands.group import Group
from determined.cli._commands.options import json_option
from determined.cli._commands.platform import platform
from determined.cli._present.tables import show_json
from determined.errors import RefusedError

if TYPE_CHECKING:
    from determined.platform.trackers.foreign_run import ForeignRun


@click.group("import", cls=Group)
def import_() -> None:
    """Bring runs of other trackers here: TensorBoard, MLflow, trackio.

    Each becomes an experiment with one trial. Repeated, an import brings only what is new or has
    changed. What is imported is only read. Experiments of another home: `det store import`.
    """


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        json_option,
        click.option(
            "--smaller-is-better", type=bool, default=True, show_default=True, help="Of --metric."
        ),
        click.option("--metric", help="The metric that decides which step is the best."),
        click.option("--project", help="PROJECT or WORKSPACE/PROJECT; made if it does not exist."),
    ):
        command = option(command)
    return command


@import_.verb("tensorboard")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@_options
def tensorboard(folder: Path, **wishes: Any) -> None:
    """Import event files below DIR: each folder with such files is a run.

    Scalars become metrics; the files themselves are copied, so that images, texts and histograms
    are shown, too.
    """
    from determined.platform.trackers.tensorboard import find_runs

    _import(find_runs(folder), **wishes)


@import_.verb("mlflow")
@click.argument("uri")
@_options
def mlflow(uri: str, **wishes: Any) -> None:
    """Import the runs of MLflow at URI: names, parameters, metrics, tags and times.

    URI is a folder `mlruns`, an SQLite file (also as sqlite:///PATH), or the address of a server,
    which needs `pip install 'determined-pytorch[mlflow]'`. Artifacts stay where they are.
    """
    from determined.platform.trackers.mlflow import find_runs

    _import(find_runs(uri), **wishes)


@import_.verb("trackio")
@click.argument("path", type=click.Path(path_type=Path))
@_options
def trackio(path: Path, **wishes: Any) -> None:
    """Import the runs of trackio in PATH: a project's file, or a folder of them."""
    from determined.platform.trackers.trackio import find_runs

    _import(find_runs(path), **wishes)


def _import(
    runs: Iterable[ForeignRun],
    project: str | None,
    metric: str | None,
    smaller_is_better: bool,
    as_json: bool,
) -> None:
    from determined.platform.trackers.importing import Wishes, import_runs

    with platform(wake=False) as service:
        if service.supervised.original is not None:
            raise RefusedError("A copy of a home cannot import: `det store adopt` it first.")
        home = service.home
        service.close()
        done = []
        for run in import_runs(home, runs, Wishes(project, metric, smaller_is_better)):
            done.append(run)
            if not as_json:
                what = "is new" if run.is_new else "changed" if run.has_grown else "is here already"
                left_out = (
                    f"; {run.num_left_out} points at negative steps are left out"
                    if run.num_left_out
                    else ""
                )
                name = printable(run.name)
                click.echo(f"{name} {what}: here it is experiment {run.experiment_id}{left_out}.")
    if as_json:
        show_json([dataclasses.asdict(run) for run in done])
    elif not done:
        click.echo("There are no runs to import.")
