"""What a training process reports through its context, kept for a look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from determined import core
from determined.core.backends.backend import LocalBackend


class Recording(core.TrainContext):
    """Reports, and keeps what was reported."""

    def __init__(self) -> None:
        super().__init__(LocalBackend())
        self.made: list[tuple[str, int, dict[str, Any]]] = []
        self.progress: list[float] = []

    def _report(
        self,
        group: str,
        steps_completed: int,
        metrics: dict[str, Any],
        batch_metrics: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        super()._report(group, steps_completed, metrics, batch_metrics)
        self.made.append((group, steps_completed, metrics))

    def report_progress(self, progress: float) -> None:
        super().report_progress(progress)
        self.progress.append(progress)

    def steps(self, group: str) -> list[int]:
        return [steps for name, steps, _ in self.made if name == group]


@contextmanager
def recorded(folder: Path) -> Iterator[tuple[core.Context, Recording]]:
    """A context with storage in `folder`, and what is reported through it."""
    with core.init(checkpoint_storage=folder / "storage") as context:
        train = Recording()
        context.train = train
        yield context, train
