"""The backend of a run that trains batches again: what it reports goes to a file of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from determined._contracts.replay_span import CHECKPOINT, ENVIRONMENT, METRICS, ReplaySpan
from determined.core.backends.backend import LocalBackend
from determined.core.backends.journal import json_values


class ReplayBackend(LocalBackend):
    """Writes down rows, checkpoints and the environment, for a comparison with the record."""

    def __init__(self, span: ReplaySpan) -> None:
        super().__init__()
        self._path = Path(span.record)

    def report_metrics(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Write down a row."""
        super().report_metrics(group, steps_completed, metrics, batch_metrics)
        self._write(
            METRICS,
            group=group,
            steps=steps_completed,
            metrics=json_values(metrics),
            batches=None if batch_metrics is None else [json_values(m) for m in batch_metrics],
        )

    def report_checkpoint(self, record: dict[str, Any]) -> None:
        """Write down the hashes of a checkpoint."""
        super().report_checkpoint(record)
        self._write(CHECKPOINT, steps=record["steps_completed"], hashes=record.get("hashes", ""))

    def report_environment(
        self, environment: Mapping[str, Any], differences: Sequence[str]
    ) -> None:
        """Write down how this process differs from the one that saved the checkpoint."""
        self._write(ENVIRONMENT, differences=list(differences))

    def _write(self, kind: str, **values: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"kind": kind, **values}) + "\n")
