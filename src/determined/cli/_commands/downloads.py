"""What commands that download checkpoints have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from determined.cli._commands.options import TEXT, json_option, smaller_option

if TYPE_CHECKING:
    from determined.platform.service import Service
    from determined.store import CheckpointFilter, RatedCheckpoint

_Function = TypeVar("_Function", bound=Callable[..., Any])


def download_options(default: str) -> Callable[[_Function], _Function]:
    """Give a command `-o`, `-q`, `--json`, `--sort-by` and `--smaller-is-better`."""
    options = (
        click.option(
            "-o",
            "--output-dir",
            type=click.Path(path_type=Path),
            help=f"Where to put it; default: {default}.",
        ),
        click.option(
            "--sort-by", type=TEXT, metavar="METRIC", help="Best by this validation metric."
        ),
        smaller_option,
        click.option("-q", "--quiet", is_flag=True, help="Print only paths."),
        json_option,
    )

    def decorate(function: _Function) -> _Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def best_checkpoints(
    service: Service,
    where: CheckpointFilter,
    experiment_id: int,
    metric: str | None,
    smaller_is_better: bool | None,
) -> list[RatedCheckpoint]:
    """Whole checkpoints that have the metric, best first; by default as the search sees it."""
    from determined.platform.queries.outcome import best_first

    if smaller_is_better is not None and metric is None:
        raise click.UsageError("--smaller-is-better needs --sort-by.")
    record = service.experiment(experiment_id)
    smaller = record.smaller_is_better if smaller_is_better is None else smaller_is_better
    rated = service.reader.rated_checkpoints(where, metric)
    found = best_first([item for item in rated if item.value is not None], smaller)
    if not found:
        name = metric or record.searcher_metric
        trial, numbers = where.trial_id, f"experiment {experiment_id}"
        instead = f"`det experiment list-checkpoints {experiment_id}` lists them all."
        if trial is not None:
            numbers = f"trial {trial}"
            instead = f"`det trial download {trial} --latest` takes the newest one."
        raise click.ClickException(
            f"No checkpoint of {numbers} was saved at a validation with the metric {name!r}, or "
            f"none is left. {instead}"
        )
    return found
