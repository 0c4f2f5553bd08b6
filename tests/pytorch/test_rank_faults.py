"""One rank goes wrong: all of them end soon, with an error, and the first one is on screen."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from determined.pytorch import _together
from tests.support import failing
from tests.support.workers import Outcome, collect_workers

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

# From the start of the processes on, which takes some seconds by itself.
DEADLINE_SECONDS = 30


def outcomes(*faults: str, process_group: bool = False, **environment: str) -> list[Outcome]:
    return collect_workers(
        2,
        failing.main,
        *faults,
        deadline_seconds=DEADLINE_SECONDS,
        process_group=process_group,
        environment=environment,
    )


def last_line(outcome: Outcome) -> str:
    assert outcome.error is not None, outcome
    return outcome.error.strip().splitlines()[-1]


class TestRaising:
    @pytest.mark.parametrize(
        ("rank", "where"),
        [
            (1, "init"),
            (0, "startup"),
            (1, "callback"),
            (0, "train"),
            (1, "backward"),
            (1, "evaluate"),
            (0, "reducer"),
            (0, "save"),
            (1, "uploaded"),
        ],
    )
    def test_the_other_rank_raises_the_first_error(self, rank: int, where: str) -> None:
        found = outcomes(f"{rank} {where} raise")
        assert [outcome.exit_code for outcome in found] == [1, 1]
        assert f"bad {where}" in str(found[rank].error)
        other = last_line(found[1 - rank])
        assert f"PeerFailedError: rank {rank} failed: " in other
        assert f"bad {where}" in other

    def test_so_it_is_with_a_group_that_the_script_made(self) -> None:
        found = outcomes("1 backward raise", process_group=True)
        assert [outcome.exit_code for outcome in found] == [1, 1]
        assert "rank 1 failed: tests.support.failing.BadError: bad backward" in last_line(found[0])

    def test_a_rank_that_does_not_notice_is_ended(self) -> None:
        found = collect_workers(
            2,
            _with_little_patience,
            "0 train raise",
            "1 train sleep",
            deadline_seconds=DEADLINE_SECONDS,
            process_group=False,
        )
        assert [outcome.exit_code for outcome in found] == [1, 1]
        assert "_sleep_in_user_code" in found[1].output
        assert (
            found[1]
            .output.strip()
            .splitlines()[-1]
            .startswith("determined.core._group.PeerFailedError: rank 0 failed: ")
        )


class TestDying:
    @pytest.mark.parametrize(
        ("rank", "where"), [(1, "train"), (0, "backward"), (1, "evaluate"), (0, "save")]
    )
    def test_the_other_rank_names_it(self, rank: int, where: str) -> None:
        found = outcomes(f"{rank} {where} kill")
        assert found[rank].exit_code == -signal.SIGKILL
        assert found[1 - rank].exit_code == 1
        assert f"PeerFailedError: rank {rank} died" in last_line(found[1 - rank])


class TestDisagreeing:
    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            ("1 models", "rank 0 is at fit while rank 1 is at wrap_model 1"),
            ("0 length", r"max_length of fit is Batch\(7\) on rank 0 and Batch\(8\) on rank 1"),
            ("1 loader", "gives no batches: TensorDataset .0 samples"),
            ("1 names", r"got \['loss'\] and \['lost'\]"),
            ("1 validation_names", r"\['validation_loss'\] on rank 0, \['lost'\] on rank 1"),
        ],
    )
    def test_all_ranks_say_what_differs(self, fault: str, message: str) -> None:
        found = outcomes(fault)
        assert [outcome.exit_code for outcome in found] == [1, 1]
        for outcome in found:
            assert re.search(message, str(outcome.error)), outcome


class TestHanging:
    """A report comes first, then the collective's own time is up."""

    @pytest.mark.parametrize("how", ["sleep", "stop"])
    def test_a_report_names_the_late_rank(self, tmp_path: Path, how: str) -> None:
        found = collect_workers(
            2,
            _with_little_patience,
            f"1 train {how}",
            deadline_seconds=DEADLINE_SECONDS,
            process_group=False,
            environment={
                "DET_STORAGE": str(tmp_path / "hanging"),
                "DET_HANG_TIMEOUT": "1.5",
                "DET_COLLECTIVE_TIMEOUT": "6",
            },
        )
        assert found[0].exit_code == 1
        assert found[1].exit_code == (1 if how == "sleep" else -signal.SIGKILL)
        assert "A collective of torch failed on rank 0" in last_line(found[0]), found[0]
        (path,) = (tmp_path / "hanging").glob("hang-reports/*/hang_1.txt")
        report = path.read_text()
        assert "made no progress for" in report
        assert "training batch 3" in report
        assert "rank 0 waits for other ranks in" in report
        if how == "sleep":
            assert "rank 1 is busy in _sleep_in_user_code" in report
        else:
            assert re.search(r"rank 1: .* is stopped", report)


def _with_little_patience(*faults: str) -> None:
    _together._GRACE_SECONDS = 2.0
    failing.main(*faults)
