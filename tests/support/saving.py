"""An experiment that saves, and what became of its checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.lab import Lab

# Validates and saves at steps 1 to 5, the third is the best.
SAVES_FIVE = """
import time
from determined import core
with core.init() as ctx:
    for step, loss in enumerate([0.9, 0.7, 0.1, 0.5, 0.6], 1):
        ctx.train.report_validation_metrics(step, {"loss": loss})
        with ctx.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "state").write_text(str(step))
"""


def steps(lab: Lab, experiment_id: int, state: str) -> list[int]:
    """The steps of the checkpoints in a state; those that exist have their files."""
    rows = [c for c in lab.checkpoints(experiment_id) if c.state == state]
    for row in rows:
        assert (lab.home.checkpoints / row.uuid).exists() is (state == "COMPLETED"), row
    return sorted(row.steps_completed for row in rows)


def collected(lab: Lab, experiment_ids: Iterable[int]) -> None:
    for experiment_id in experiment_ids:
        lab.wait(experiment_id)
        lab.until(lambda i=experiment_id: is_collected(lab, i))  # type: ignore[misc]


def is_collected(lab: Lab, experiment_id: int) -> bool:
    is_due = lab.experiment(experiment_id).gc_is_due
    return not is_due and not lab.service.reader.is_deleting(experiment_id)
