"""What a run leaves for people to see: event files that survive a kill, one summary, one voice."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from determined import pytorch
from determined.pytorch import Batch
from determined.tensorboard import _events
from tests.support.trials import LineTrial, train
from tests.support.workers import collect_workers
from tests.tensorboard.read_events import read_points


class _Killed(LineTrial):
    num_batches = 30

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx == 25:
            time.sleep(2)  # a long batch, as far as the writer of event files is concerned
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train_batch(batch, epoch_idx, batch_idx)


def _train_until_killed(path: str) -> None:
    train(_Killed, {"tensorboard_path": path}, max_length=Batch(30), reporting_period=Batch(10))


def _train_with_slow_reports_until_killed(path: str) -> None:
    _events._LINGER_SECONDS = 1000.0
    train(
        _Killed,
        {"tensorboard_path": path},
        max_length=Batch(30),
        reporting_period=Batch(10),
        checkpoint_period=Batch(20),
    )


@pytest.mark.multiprocess
def test_what_a_checkpoint_will_not_report_again_is_written_with_it(tmp_path: Path) -> None:
    (outcome,) = collect_workers(1, _train_with_slow_reports_until_killed, str(tmp_path))
    assert outcome.exit_code == -signal.SIGKILL, str(outcome)
    assert [step for step, _ in read_points(tmp_path)["Determined/loss"]] == list(range(20))


@pytest.mark.multiprocess
def test_a_killed_run_leaves_every_report_in_its_event_file(tmp_path: Path) -> None:
    (outcome,) = collect_workers(1, _train_until_killed, str(tmp_path))
    assert outcome.exit_code == -signal.SIGKILL, str(outcome)
    points = read_points(tmp_path)
    assert [step for step, _ in points["Determined/loss"]] == list(range(20))
    for tag in ("lr/SGD/0", "throughput/batches_per_second", "throughput/samples_per_second"):
        assert [step for step, _ in points[tag]] == [10, 20]


def test_throughput_counts_the_samples_of_a_batch(tmp_path: Path) -> None:
    train(LineTrial, {"tensorboard_path": tmp_path}, max_length=Batch(3))
    points = read_points(tmp_path)
    (_, batches), (_, samples) = (
        points[f"throughput/{unit}_per_second"][0] for unit in ("batches", "samples")
    )
    assert batches > 0
    assert samples == pytest.approx(2 * batches)


def test_nothing_is_written_where_logging_is_off(tmp_path: Path) -> None:
    init = {"tensorboard_path": tmp_path / "tb", "enable_tensorboard_logging": False}
    train(LineTrial, init, max_length=Batch(3))
    assert not list(tmp_path.rglob("*tfevents*"))


def _last_lines(capfd: pytest.CaptureFixture[str], count: int) -> list[str]:
    return capfd.readouterr().err.splitlines()[-count:]


def test_the_last_lines_sum_the_run_up_and_say_how_to_go_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    train(LineTrial, max_length=Batch(3), metric="validation_loss", progress=True)
    trained, best, checkpoint, on = _last_lines(capfd, 4)
    assert trained.startswith("Trained     3 batches (1 epoch) in ")
    assert best.startswith("Best        validation_loss ")
    assert checkpoint.startswith(f"Checkpoint  {os.environ['DET_STORAGE']}")
    assert on.startswith('Continue    fit(latest_checkpoint="latest", max_length=...) in run ')


def test_a_run_that_fails_says_what_it_leaves_behind(capfd: pytest.CaptureFixture[str]) -> None:
    class Failing(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            if batch_idx == 2:
                raise RuntimeError("broken")
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(RuntimeError, match="broken"):
        train(Failing, max_length=Batch(3), checkpoint_period=Batch(1), progress=True)
    failed, checkpoint, on = _last_lines(capfd, 3)
    assert failed.startswith("Failed      after 2 batches (0 epochs), ")
    assert os.environ["DET_STORAGE"] in checkpoint
    assert on.startswith('Continue    fit(latest_checkpoint="latest", ...) in run ')


def _fit_loudly(path: str) -> None:
    with pytorch.init(tensorboard_path=path) as context:
        trainer = pytorch.Trainer(LineTrial(context), context)
        trainer.fit(max_length=Batch(1), progress=True, profiling_enabled=True)
        context.get_tensorboard_writer().add_scalar("own", 1.0, 1)
        context.get_tensorboard_writer().flush()


@pytest.mark.multiprocess
def test_the_chief_alone_speaks_and_ranks_write_their_own_files(tmp_path: Path) -> None:
    chief, other = collect_workers(2, _fit_loudly, str(tmp_path))
    assert (chief.exit_code, other.exit_code) == (0, 0), f"{chief}{other}"
    assert "training batch=1/1" in chief.output
    assert "Where did the time go?" in chief.output
    assert other.output == ""
    assert set(read_points(tmp_path / "rank_1")) == {"own"}
    own_files = tmp_path.glob("*tfevents*")
    assert {tag for file in own_files for tag in read_points(file)} >= {"own", "Determined/loss"}
