"""A fork on a cluster takes the same path as on one machine, and replays run here."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.platform.debugging.replay import Replays
from determined.platform.service.forking import Forks
from tests.support.cluster_lab import ClusterLab
from tests.support.forked import create, finished, rows, trained, weights

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(600)]


def test_an_unchanged_fork_ends_like_its_parent_and_a_changed_one_does_not(
    lab: ClusterLab, tmp_path: Path
) -> None:
    parent = create(lab)
    expected, trial = weights(lab, parent), finished(lab, parent)
    fork = Forks(lab.service).create(trial.id, 13)
    assert weights(lab, fork) == expected
    assert rows(lab, finished(lab, fork)) == rows(lab, trial)
    changed = Forks(lab.service).create(trial.id, 13, {"lr": 0.04})
    assert weights(lab, changed) != expected
    rates = {number: rate for number, rate, _ in trained(lab, changed)}
    assert rates[12] == pytest.approx(0.01 * 0.95**12)
    assert rates[13] == pytest.approx(0.04 * 0.95**13)
    replays = Replays(lab.service.reader, lab.home, trial, lab.service.experiment(parent))
    found = replays.run(replays.plan(12, 19), tmp_path)
    assert found.checked.departure is None, str(found)
    assert found.checked.rows > 0
