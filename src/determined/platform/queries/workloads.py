"""What a trial did at each step: metrics and checkpoints, one row per number of batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from determined.store import Checkpoint, CheckpointFilter, Reader


@dataclass
class Workload:
    """All that is known about one step of a trial; times are None for what did not happen."""

    trial_id: int
    steps_completed: int
    training: dict[str, Any] = field(default_factory=dict)
    training_time: float | None = None
    validation: dict[str, Any] = field(default_factory=dict)
    validation_time: float | None = None
    checkpoint: Checkpoint | None = None

    @property
    def time(self) -> float | None:
        """When the last of it was reported."""
        times = [self.training_time, self.validation_time]
        if self.checkpoint is not None:
            times.append(self.checkpoint.report_time)
        return max((time for time in times if time is not None), default=None)


def workloads(reader: Reader, trial_id: int) -> list[Workload]:
    """The steps of a trial at which something was reported, in their order."""
    found: dict[int, Workload] = {}
    for report in reader.metrics.reports(trial_id):
        if report.group not in ("training", "validation"):
            continue
        row = found.setdefault(report.steps_completed, Workload(trial_id, report.steps_completed))
        if report.group == "training":
            row.training.update(report.metrics)
            row.training_time = report.time
        else:
            row.validation.update(report.metrics)
            row.validation_time = report.time
    for checkpoint in reader.checkpoints(CheckpointFilter(trial_id=trial_id)).rows:
        steps = checkpoint.steps_completed
        found.setdefault(steps, Workload(trial_id, steps)).checkpoint = checkpoint
    return [found[steps] for steps in sorted(found)]
