"""The race of kills: what its runner counts, and that our script does what the table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kills import __main__ as kills
from benchmarks.kills import digits


def test_no_kill_is_where_all_is_saved_anyway() -> None:
    batches = -(-len(digits.dataset()) // digits.BATCH_SIZE)
    assert batches == 45
    assert all(kill % batches and kill % 20 for kill in kills.KILLS)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.multiprocess
def test_our_script_ends_with_the_same_weights_and_trains_few_batches_twice(tmp_path: Path) -> None:
    whole = kills.train("ours", tmp_path / "whole", 20)
    killed = kills.train("ours", tmp_path / "killed", 20, (210,))
    assert whole.batches == 900
    assert killed.weights == whole.weights != ""
    assert killed.batches > 900


def test_a_script_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(kills.FailedError, match="No module named"):
        kills.train("missing", tmp_path, 20)
