"""A step of a trial as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from determined.cli._tables import iso_time

if TYPE_CHECKING:
    from determined.platform.workloads import Workload


def workload_json(step: Workload, metrics: bool = True) -> dict[str, Any]:
    """The step, its times, and with `metrics` their values."""
    content: dict[str, Any] = {
        "steps_completed": step.steps_completed,
        "training_time": iso_time(step.training_time),
        "validation_time": iso_time(step.validation_time),
        "checkpoint": None,
    }
    if step.checkpoint is not None:
        content["checkpoint"] = {
            "uuid": step.checkpoint.uuid,
            "state": step.checkpoint.state,
            "report_time": iso_time(step.checkpoint.report_time),
        }
    if metrics:
        content |= {"training_metrics": step.training, "validation_metrics": step.validation}
    return content
