"""Records of the store as data, for JSON, and which of them a table shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from determined.cli._present.tables import Output, iso_time, show, size_text

if TYPE_CHECKING:
    from determined.platform.queries.workloads import Workload
    from determined.store import Checkpoint, RatedCheckpoint

_TIMES = ("created", "updated", "started", "ended", "report_time", "heartbeat", "time")


def record_json(record: Any, hidden: tuple[str, ...] = ()) -> dict[str, Any]:
    """A record of the store as data: times are ISO 8601."""
    return {
        field.name: iso_time(value) if field.name in _TIMES else value
        for field in dataclasses.fields(record)
        if field.name not in hidden
        for value in [getattr(record, field.name)]
    }


def checkpoint_json(checkpoint: Checkpoint) -> dict[str, Any]:
    """A checkpoint as data; where it is stored, without secrets."""
    from determined.config import masked

    content = record_json(checkpoint)
    content["storage"] = masked({"checkpoint_storage": checkpoint.storage})["checkpoint_storage"]
    return content


def show_checkpoints(
    rated: Sequence[RatedCheckpoint], output: Output = "table", *, with_experiment: bool = False
) -> None:
    """Print checkpoints with the metric that rates them."""
    headers = ["Trial ID", "# of Batches", "State", "Validation Metric", "UUID", "Resources"]
    rows: list[list[Any]] = [
        [
            item.checkpoint.trial_id,
            item.checkpoint.steps_completed,
            item.checkpoint.state,
            item.value,
            item.checkpoint.uuid,
            len([name for name in item.checkpoint.resources if not name.endswith("/")]),
            size_text(item.checkpoint.size),
        ]
        for item in rated
    ]
    headers.append("Size")
    if with_experiment:
        headers.insert(0, "Experiment ID")
        rows = [
            [item.checkpoint.experiment_id, *row] for item, row in zip(rated, rows, strict=True)
        ]
    data = [{**checkpoint_json(item.checkpoint), "validation_metric": item.value} for item in rated]
    show(headers, rows, output, data)


def validated_or_saved(steps: Sequence[Workload]) -> list[Workload]:
    """The steps with a validation or a checkpoint; the others have training metrics only."""
    return [s for s in steps if s.validation_time is not None or s.checkpoint is not None]


def mention_others(count: int) -> None:
    """Say how many steps were left out, and how to see them."""
    if count:
        what = "1 step" if count == 1 else f"{count} steps"
        click.echo(f"{what} with training metrics only: --metrics, --csv or --json shows them.")
