"""Checkpoints as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from determined.cli._present.tables import Output, show, size_text

if TYPE_CHECKING:
    from determined.store import RatedCheckpoint


def show_checkpoints(
    rated: Sequence[RatedCheckpoint], output: Output = "table", *, with_experiment: bool = False
) -> None:
    """Print checkpoints with the metric that rates them."""
    from determined.cli._present.as_data import checkpoint_json

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
