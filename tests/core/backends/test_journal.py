"""What every backend promises, and what the one for runs of the platform adds."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from determined import journal
from determined.core import EarlyExitReason
from determined.core.backends.backend import Backend, LocalBackend, RunDescription
from determined.core.backends.detached import DetachedBackend
from determined.core.backends.journal import JournalBackend
from determined.core.backends.run_log import RunLog
from determined.core.backends.tracked import TrackedBackend
from determined.errors import MetricConflictError
from determined.journal import Control, InboxItem, JournalReader, Record
from tests.support.waiting import eventually


def records_of(folder: Path) -> list[Record]:
    """What the journals in a folder say, without times."""
    records = [
        r for path in sorted(folder.glob("journal-*")) for r in JournalReader(path).records()
    ]
    return [dataclasses.replace(record, time=0.0) for record in records]


@pytest.fixture(params=["local", "journal", "tracked", "detached"])
def backend(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Backend]:
    monkeypatch.setenv("DET_HOME", str(tmp_path))
    made: Backend
    if request.param == "local":
        made = LocalBackend()
    elif request.param == "journal":
        made = JournalBackend(tmp_path, 1, 0)
    elif request.param == "tracked":
        made = TrackedBackend({"type": "shared_fs", "host_path": str(tmp_path)})
    else:
        item, writer = InboxItem.create(tmp_path)
        made = DetachedBackend(item, writer, RunLog(item), 1, 0)
    yield made
    made.close()


class TestEveryBackend:
    """The contract that the contexts rely on."""

    def test_everything_can_be_reported(self, backend: Backend) -> None:
        backend.report_metrics("training", 1, {"loss": 0.5}, [{"loss": 0.4}])
        backend.report_metrics("validation", 1, {"loss": math.nan})
        backend.report_metrics("mine", 1, {"text": "a", "none": None, "array": np.zeros(2)})
        backend.report_progress(0.5)
        backend.set_status("training")
        backend.before_save("u", {"steps_completed": 1})
        backend.report_checkpoint(
            {"uuid": "u", "resources": {"w": 1}, "metadata": {}, "steps_completed": 1}
        )
        backend.checkpoint_deleted("u")
        backend.upload_tensorboard_files(Path(), lambda _: True, lambda path, _: path)
        backend.acknowledge_preemption()
        backend.alert("title", None, "warn")
        backend.report_task_using("checkpoint", "u")
        backend.report_early_exit(EarlyExitReason.INVALID_HP)
        backend.report_early_exit(EarlyExitReason.INVALID_HP)
        backend.describe_run(RunDescription(run_id="r", hparams={"lr": 0.1}))
        backend.report_environment({"threads": 2}, ["2 threads instead of 1"])
        backend.note_end(ValueError("x"), None)

    def test_best_is_the_extreme_of_the_metric(self, backend: Backend) -> None:
        backend.set_best_tracking("m", False, 0.5)
        assert backend.best_validation() == 0.5
        for step, value in enumerate((0.4, math.nan, 0.7, None, 0.6)):
            backend.report_metrics("validation", step, {"m": value, "other": 9.0})
        assert backend.best_validation() == 0.7
        assert backend.last_validation() == 4

    def test_only_validations_count(self, backend: Backend) -> None:
        backend.set_best_tracking("m", True)
        backend.report_metrics("training", 1, {"m": 1.0})
        assert (backend.best_validation(), backend.last_validation()) == (None, None)

    def test_a_new_fit_forgets_the_old_one(self, backend: Backend) -> None:
        backend.set_best_tracking("m", True)
        backend.report_metrics("validation", 7, {"m": 1.0})
        backend.set_best_tracking("m", True)
        assert (backend.best_validation(), backend.last_validation()) == (None, None)

    def test_preemption_can_be_requested(self, backend: Backend) -> None:
        assert not backend.should_preempt()
        backend.request_preemption()
        assert backend.should_preempt()

    def test_metadata_is_replaced(self, backend: Backend) -> None:
        assert backend.get_metadata() == {}
        assert backend.set_metadata({"a": 1}) == {"a": 1}
        assert backend.set_metadata({"b": [1, None]}) == {"b": [1, None]}
        assert backend.get_metadata() == {"b": [1, None]}

    def test_recent_system_metrics_are_kept(self, backend: Backend) -> None:
        for number in range(1500):
            backend.report_system_metrics("cpu", {"n": number})
        recent = backend.recent_system_metrics()
        assert len(recent) == 1000
        assert recent[-1] == ("cpu", {"n": 1499})


@pytest.fixture
def run(tmp_path: Path) -> Iterator[JournalBackend]:
    made = JournalBackend(tmp_path, 3, 100)
    yield made
    made.close()


def test_reports_stand_in_the_journal_in_order(run: JournalBackend, tmp_path: Path) -> None:
    run.report_metrics("training", 101, {"loss": np.float32(0.5)}, [{"loss": 0.25, "n": 3}])
    run.set_status("validating")
    run.report_progress(0.5)
    run.report_early_exit(EarlyExitReason.INVALID_HP)
    run.report_early_exit(EarlyExitReason.USER_REQUESTED_STOP)
    run.acknowledge_preemption()
    columns = journal.BatchColumns.of([{"loss": 0.25, "n": 3}])
    assert records_of(tmp_path) == [
        journal.RunStarted(3, 100, time=0.0),
        journal.Metrics("training", 101, {"loss": 0.5}, columns, time=0.0),
        journal.Status("validating", time=0.0),
        journal.Progress(0.5, time=0.0),
        journal.EarlyExit("INVALID_HP", time=0.0),
        journal.PreemptionAcknowledged(time=0.0),
    ]


def test_values_of_any_kind_become_plain(run: JournalBackend, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "array": np.arange(3), "scalar": np.float64(1.5), "flag": np.bool_(True), "blob": b"x",
        "tuple": (1, np.int64(2)), "inner": {1: np.float32(2)}, "path": Path("a"),
    }  # fmt: skip
    run.report_metrics("training", 1, given)
    (record,) = (r for r in records_of(tmp_path) if isinstance(r, journal.Metrics))
    assert record.metrics == {
        "array": [0, 1, 2], "scalar": 1.5, "flag": True, "tuple": [1, 2], "inner": {"1": 2.0},
        "path": "a",
    }  # fmt: skip


def test_columns_of_arrays_are_taken_as_they_are(run: JournalBackend, tmp_path: Path) -> None:
    class Rows(list[dict[str, Any]]):
        columns = {"loss": np.array([0.5, math.inf], "f4"), "n": np.array([1, 2]), "t": ["a", None]}

    run.report_metrics("training", 2, {}, Rows([{}, {}]))
    (record,) = (r for r in records_of(tmp_path) if isinstance(r, journal.Metrics))
    assert record.batches is not None
    assert record.batches.columns["loss"].is_numeric
    assert record.batches.to_dicts() == [
        {"loss": 0.5, "n": 1, "t": "a"},
        {"loss": math.inf, "n": 2, "t": None},
    ]


def test_a_second_different_value_is_refused_with_its_name(run: JournalBackend) -> None:
    run.report_metrics("training", 1, {"a": 1.0, "b": math.nan})
    run.report_metrics("training", 1, {"a": 1.0, "b": math.nan, "c": 2.0})
    run.report_metrics("validation", 1, {"a": 2.0})
    with pytest.raises(MetricConflictError, match=r"'a' of group 'training'.*step 1.*1\.0.*2\.0"):
        run.report_metrics("training", 1, {"a": 2.0})


@pytest.mark.parametrize("name", ["epoch", "epochs"])
def test_epochs_must_be_numbers(run: JournalBackend, name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' must be a number"):
        run.report_metrics("training", 1, {name: "three"})


def test_the_control_file_preempts(run: JournalBackend, tmp_path: Path) -> None:
    assert not run.should_preempt()
    Control(preempt=True, reason="paused").write(tmp_path)
    eventually(run.should_preempt)


def test_a_preemption_that_came_first_is_seen_at_once(tmp_path: Path) -> None:
    Control(preempt=True).write(tmp_path)
    backend = JournalBackend(tmp_path, 1, 0)
    assert backend.should_preempt()
    backend.close()


def test_best_is_the_better_of_own_and_all_trials(run: JournalBackend, tmp_path: Path) -> None:
    run.set_best_tracking("m", True)
    run.report_metrics("validation", 1, {"m": 0.5})
    Control(best_validation=0.3).write(tmp_path)
    eventually(lambda: run.best_validation() == 0.3)
    run.report_metrics("validation", 2, {"m": 0.2})
    assert run.best_validation() == 0.2


def test_whether_a_validation_is_best_is_about_its_own_trial(
    run: JournalBackend, tmp_path: Path
) -> None:
    run.set_best_tracking("m", True)
    Control(best_validation=0.3).write(tmp_path)
    eventually(lambda: run.best_validation() == 0.3)
    assert run.own_best() is None
    assert run.is_best({"m": 0.9})
    run.report_metrics("validation", 1, {"m": 0.9})
    assert (run.own_best(), run.best_validation()) == (0.9, 0.3)
    assert run.is_best({"m": 0.8})
    assert not run.is_best({"m": 0.95})


def test_what_older_runs_left_comes_by_the_control_file(tmp_path: Path) -> None:
    Control(last_validation=100, metadata={"a": 1}).write(tmp_path)
    backend = JournalBackend(tmp_path, 2, 100)
    assert backend.last_validation() == 100
    assert backend.get_metadata() == {"a": 1}
    backend.close()


def test_a_damaged_control_file_changes_nothing(
    run: JournalBackend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "control").write_text("{not json")
    eventually(lambda: "control file" in caplog.text)
    assert not run.should_preempt()
    Control(preempt=True).write(tmp_path)
    eventually(run.should_preempt)


def test_unknown_keys_of_a_control_file_are_passed_over() -> None:
    text = json.dumps({"preempt": True, "new": 1, "best_validation": None})
    assert Control.parse(text) == Control(preempt=True)


def test_asking_for_preemption_is_a_memory_read(run: JournalBackend) -> None:
    count = 20_000
    start = time.perf_counter()
    for _ in range(count):
        run.should_preempt()
    assert (time.perf_counter() - start) / count < 50e-6


def test_other_ranks_have_journals_of_their_own(tmp_path: Path) -> None:
    chief, worker = JournalBackend(tmp_path, 1, 0), JournalBackend(tmp_path, 1, 0, rank=1)
    assert len(list(tmp_path.glob("journal-*"))) == 1, "a rank with nothing to say writes nothing"
    worker.report_early_exit(EarlyExitReason.INVALID_HP)
    worker.set_metadata({"a": 1})
    assert records_of(tmp_path)[1:] == [journal.EarlyExit("INVALID_HP", rank=1, time=0.0)]
    chief.close()
    worker.close()


def test_reports_of_many_threads_are_all_there(run: JournalBackend, tmp_path: Path) -> None:
    def talk(number: int) -> None:
        for step in range(100):
            run.report_system_metrics(f"group{number}", {"step": step})

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        own = [
            r
            for r in records_of(tmp_path)
            if isinstance(r, journal.SystemSamples) and r.group == f"group{number}"
        ]
        assert [r.samples["step"] for r in own] == list(range(100))


def test_reports_wait_while_the_folder_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    backend = JournalBackend(folder, 1, 0)
    backend.report_progress(0.5)
    assert "kept in memory" in caplog.text
    folder.mkdir()
    backend.before_save("u", {"steps_completed": 3})
    assert records_of(folder) == [
        journal.RunStarted(1, 0, time=0.0),
        journal.Progress(0.5, time=0.0),
        journal.CheckpointAnnounced("u", 3, time=0.0),
    ]
    backend.close()
