"""One rank goes wrong: all of them end soon, with an error, and the first one is on screen."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset

from determined.pytorch import DataLoader
from determined.pytorch._ranks import together
from tests.support import failing
from tests.support.messages import documented
from tests.support.trials import LineTrial, train
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

    def test_the_rank_that_failed_says_that_nothing_is_saved(self) -> None:
        found = outcomes("0 evaluate raise")
        text = found[0].output
        line = next(line for line in text.splitlines() if "Not saved" in line)
        documented("user code raises, and there are several ranks", line[line.index("Not") :])
        assert "Not saved" not in found[1].output

    def test_hyperparameters_refused_by_one_rank_end_all(self) -> None:
        found = outcomes("1 train refuse")
        assert [outcome.exit_code for outcome in found] == [1, 1]
        assert "rank 1 failed: determined.errors.InvalidHP: bad train" in last_line(found[0])

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
            .startswith("determined.core.ranks.group.PeerFailedError: rank 0 failed: ")
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
                "DET_COLLECTIVE_TIMEOUT": "4",
                "FAILING_END": str(tmp_path / "end"),
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

    def test_loader_workers_show_where_they_are(self, tmp_path: Path) -> None:
        (outcome,) = collect_workers(
            1,
            _train_on_slow_data,
            deadline_seconds=DEADLINE_SECONDS,
            process_group=False,
            environment={"DET_STORAGE": str(tmp_path / "slow"), "DET_HANG_TIMEOUT": "1"},
        )
        assert outcome.exit_code == 0, outcome
        reports = list((tmp_path / "slow").glob("hang-reports/*/*"))
        assert any("in _read_slowly" in report.read_text() for report in reports)
        assert all(report.name.startswith("hang_") for report in reports)


def _with_little_patience(*faults: str) -> None:
    together._GRACE_SECONDS = together._NEWS_SECONDS = 1.0
    try:
        failing.main(*faults)
    finally:
        Path(os.environ.get("FAILING_END", os.devnull)).touch()


class _SlowData(Dataset[Any]):
    def __getitem__(self, index: int) -> float:
        if index == 2:
            _read_slowly()
        return float(index)

    def __len__(self) -> int:
        return 4


def _read_slowly() -> None:
    """Wait until a report tells of this."""
    deadline = time.monotonic() + DEADLINE_SECONDS / 2
    while time.monotonic() < deadline:
        for report in Path(os.environ["DET_STORAGE"]).glob("hang-reports/*/hang_*"):
            if "in _read_slowly" in report.read_text():
                return
        time.sleep(0.05)


class _SlowTrial(LineTrial):
    def build_training_data_loader(self) -> DataLoader:
        return DataLoader(_SlowData(), batch_size=1, num_workers=1)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        return {"value": batch}


def _train_on_slow_data() -> None:
    train(_SlowTrial)
