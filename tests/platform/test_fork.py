"""Forks on the platform, with real processes: exact where nothing changes, changed once elsewhere."""

from __future__ import annotations

import pytest

from tests.support.forked import LENGTH, create, finished, rows, trained, weights
from tests.support.lab import Lab, lab

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]


def own_rows(lab: Lab, trial_id: int) -> set[int]:
    """The steps of the rows that the store holds for a trial itself."""
    return {report.steps_completed for report in lab.service.reader.reports_since([trial_id], 0)}


@pytest.mark.parametrize("slots", [1, 2])
def test_an_unchanged_fork_ends_with_the_weights_of_its_parent(lab: Lab, slots: int) -> None:
    parent = create(lab, slots=slots)
    expected, trial = weights(lab, parent), finished(lab, parent)
    for at, again in ((10, 0), (13, 3), (4, 4)):  # at a checkpoint, between two, before all
        assert lab.service.plan_fork(trial.id, at).batches_again == again
        fork = lab.service.fork(trial.id, at)
        assert weights(lab, fork) == expected, lab.account()
        (forked,) = lab.trials(fork)
        assert rows(lab, forked) == rows(lab, trial)
        assert min(own_rows(lab, forked.id)) > at
        batches = [number for number, *_ in trained(lab, fork)]
        if slots == 1:
            assert batches == list(range(at - again, LENGTH))
        assert min(c.steps_completed for c in lab.checkpoints(fork) if c.size) >= at
