"""Reports in a CSV file."""

from __future__ import annotations

import csv
import os
import pathlib
from collections.abc import Iterator
from typing import Any, TextIO

from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch.callbacks._trackers.tracker import MetricsTracker, Report

_HEADER = ["steps_completed", "group", "metric", "value"]


class CSVTracker(MetricsTracker):
    """Writes one line per metric and report: `steps_completed, group, metric, value`.

    `group` is `training` or `validation`. A resumed run continues the file from where its
    checkpoint was saved, so no step appears twice. A new run moves an older file to `<path>.old`.

    Args:
        context: The trial's context.
        path: The file; its directory is created.
        **options: As for `MetricsTracker`.
    """

    def __init__(
        self, context: PyTorchTrialContext, path: str | os.PathLike[str], **options: Any
    ) -> None:
        super().__init__(context, **options)
        self._path = pathlib.Path(path).absolute()
        self._file: TextIO | None = None

    def open(self) -> None:
        """Create the file, or remove what came after the checkpoint."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = list(self._kept())
        if self.first_batch_idx == 0 and self._path.exists():
            self._path.replace(self._path.with_name(f"{self._path.name}.old"))
        stage = self._path.with_name(f".{self._path.name}.new")
        with stage.open("w", newline="") as file:
            csv.writer(file).writerows([_HEADER, *kept])
        stage.replace(self._path)
        self._file = self._path.open("a", newline="")

    def record(self, report: Report) -> None:
        """Write the lines of a report."""
        assert self._file is not None
        csv.writer(self._file).writerows(
            [report.steps_completed, report.group, name, repr(value)]
            for name, value in report.metrics.items()
        )
        self._file.flush()

    def close(self, failed: bool) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _kept(self) -> Iterator[list[str]]:
        if self.first_batch_idx == 0 or not self._path.exists():
            return
        with self._path.open(newline="") as file:
            for row in csv.reader(file):
                # A killed run may have left half a line.
                is_whole = len(row) == len(_HEADER) and row[0].isdigit() and row[3]
                if is_whole and int(row[0]) <= self.first_batch_idx:
                    yield row
