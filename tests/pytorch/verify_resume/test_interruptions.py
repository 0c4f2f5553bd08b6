"""Where runs are interrupted: planned from what an unbroken run passed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.pytorch.verify_resume._interruptions import KINDS, StopPoint, plan_stops

_STAGES = ("data", "train_batch", "on_training_batch_end", "validation", "checkpoint")
_stop_points = st.builds(StopPoint, st.integers(-1, 9), st.sampled_from(_STAGES), st.integers(1, 2))


@given(st.lists(_stop_points, unique=True).map(sorted))
def test_plan_has_at_most_one_stop_of_each_kind_each_in_a_later_batch(
    passed: list[StopPoint],
) -> None:
    plan = plan_stops(passed)
    assert set(plan) <= set(passed)
    assert len({point.kind for point in plan}) == len(plan)
    assert all(before.batch < after.batch for before, after in zip(plan, plan[1:], strict=False))
    assert bool(plan) == any(point.batch >= 0 for point in passed)


def test_a_run_that_has_every_kind_of_place_is_stopped_at_each_of_them() -> None:
    passed = [StopPoint(batch, stage) for batch in range(20) for stage in _STAGES]
    assert [point.kind for point in plan_stops(passed)] == list(KINDS)


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        ("data", "between two batches"),
        ("after data", "in a batch"),
        ("after optimizer", "in a batch"),
        ("on_training_epoch_start", "in a hook"),
        ("on_validation_epoch_end", "in a validation"),
        ("evaluate_batch", "in a validation"),
        ("after on_checkpoint_save_start", "at a save"),
    ],
)
def test_kinds_of_places(stage: str, kind: str) -> None:
    assert StopPoint(3, stage).kind == kind
