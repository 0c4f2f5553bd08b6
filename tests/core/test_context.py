"""core.init: the parts of a context, its start and its end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from determined import InvalidHP, core, journal
from determined.core.backends.backend import LocalBackend
from determined.errors import DistributedError
from tests.support.tasks import become_a_task
from tests.support.workers import collect_workers, run_threads, run_workers


def test_a_run_on_its_own_has_every_part(tmp_path: Path) -> None:
    with core.init(checkpoint_storage=str(tmp_path)) as context:
        assert context.info is None
        assert context.distributed.size == 1
        assert not context.preempt.should_preempt()
        context.train.report_training_metrics(1, {"loss": 1.0})
        context.profiler.on()
        context.experimental.report_task_using_checkpoint("u")
        context.experimental.report_task_using_model_version("v")
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, storage_id):
            (path / "weights").write_text("w")
        assert context.checkpoint.get_metadata(storage_id)["steps_completed"] == 1
    assert context.profiler._thread is None


def test_the_old_private_way_in_works_too(tmp_path: Path) -> None:
    events = tmp_path / "events"
    with core._dummy_init(checkpoint_storage=tmp_path, tensorboard_path=events) as context:
        assert context.train.get_tensorboard_path() == events
        assert context.searcher.get_configured_units() is core.Unit.EPOCHS


def test_a_checkpoint_context_is_enough(tmp_path: Path) -> None:
    checkpoint = core._dummy_init(checkpoint_storage=tmp_path).checkpoint
    with core.Context(checkpoint) as context:
        assert not context.preempt.should_preempt()
        assert context.distributed.rank == 0


def test_event_files_lie_beside_the_checkpoints(tmp_path: Path) -> None:
    context = core.init(checkpoint_storage=str(tmp_path))
    assert not (tmp_path / "tensorboard").exists()
    assert context.train.get_tensorboard_path().parent == tmp_path / "tensorboard"


def test_reports_reach_tensorboard_in_auto_mode_only(tmp_path: Path) -> None:
    for mode in core.TensorboardMode:
        events = tmp_path / mode.value
        with core.init(
            checkpoint_storage=str(tmp_path), tensorboard_mode=mode, tensorboard_path=events
        ) as context:
            context.train.report_training_metrics(2, {"loss": 1.0}, [{"loss": 1.5}, {"loss": 0.5}])
            context.train.report_validation_metrics(2, {"acc": 0.5})
    assert not (tmp_path / "MANUAL").exists()
    assert _scalars(tmp_path / "AUTO") == {
        "Determined/loss": [(0, 1.5), (1, 0.5)],
        "Determined/val_acc": [(2, 0.5)],
    }


def _scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory))
    events.Reload()
    tags: list[str] = events.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def _event_directory() -> list[Any]:
    distributed = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed) as context:
        return [str(context.train.get_tensorboard_path()), context.preempt.should_preempt()]


@pytest.mark.multiprocess
def test_ranks_agree_on_the_event_directory(tmp_path: Path) -> None:
    (chief, _), (worker, _) = run_workers(2, _event_directory, process_group=False)
    assert worker == f"{chief}/rank_1"


def test_modes_are_passed_on() -> None:
    def ask(distributed: core.DistributedContext) -> list[bool]:
        with core.init(distributed=distributed, preempt_mode=core.PreemptMode.ChiefOnly) as context:
            if distributed.rank == 0:
                assert not context.preempt.should_preempt()  # a broadcast would wait for ever
            return distributed.allgather(True)

    assert run_threads((1, 2), ask) == [[True, True], [True, True]]


def test_wrong_storage_is_refused() -> None:
    with pytest.raises(TypeError, match="`checkpoint_storage`"):
        core.init(checkpoint_storage=3)  # type: ignore[arg-type]  # the wrong type is the point


def test_a_rank_that_cannot_start_does_not_leave_the_others_waiting(tmp_path: Path) -> None:
    def start(distributed: core.DistributedContext) -> str:
        storage: Any = 3 if distributed.rank == 0 else str(tmp_path)
        try:
            distributed.allgather(None)  # both are there
            core.init(distributed=distributed, checkpoint_storage=storage)
        except (TypeError, DistributedError) as error:
            return f"{type(error).__name__}: {error}"
        return "started"

    chief, worker = run_threads((1, 2), start)
    assert chief.startswith("TypeError")
    assert "rank 0" in worker


def test_invalid_hyperparameters_are_reported_and_come_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="determined.core")
    with pytest.raises(InvalidHP, match="too deep"), core.init(checkpoint_storage=str(tmp_path)):
        raise InvalidHP("too deep")
    assert "report_early_exit(reason=INVALID_HP)" in caplog.text
    assert "The hyperparameters are invalid: too deep" in caplog.text


class SupervisedBackend(LocalBackend):
    restarts_trials = True


def test_invalid_hyperparameters_end_the_process_well_under_a_supervisor(tmp_path: Path) -> None:
    checkpoint = core._dummy_init(checkpoint_storage=tmp_path).checkpoint
    with pytest.raises(SystemExit) as left, core.Context(checkpoint, backend=SupervisedBackend()):
        raise InvalidHP("too deep")
    assert left.value.code == 0


class FailingBackend(LocalBackend):
    def close(self) -> None:
        raise OSError("cannot flush")


def test_closing_goes_on_after_a_failure_and_raises_it(tmp_path: Path) -> None:
    checkpoint = core._dummy_init(checkpoint_storage=tmp_path).checkpoint
    before = signal.getsignal(signal.SIGUSR1)
    context = core.Context(checkpoint, backend=FailingBackend())
    context.start()
    context.profiler.on()
    with pytest.raises(OSError, match="cannot flush"):
        context.close()
    assert context.profiler._thread is None
    assert signal.getsignal(signal.SIGUSR1) is before


def test_a_failure_to_close_does_not_hide_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = core._dummy_init(checkpoint_storage=tmp_path).checkpoint
    with pytest.raises(KeyError, match="mine"), core.Context(checkpoint, backend=FailingBackend()):
        raise KeyError("mine")
    assert "cannot flush" in caplog.text


def _fail_on_rank_1() -> str:
    distributed = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed) as context:
        if distributed.rank == 1:
            raise KeyError("only here")
        try:
            context.preempt.should_preempt()
        except DistributedError as error:
            return str(error)
    return "went on"


@pytest.mark.multiprocess
def test_an_error_on_one_rank_reaches_the_others() -> None:
    chief, worker = collect_workers(2, _fail_on_rank_1, process_group=False)
    assert "rank 1" in chief.value
    assert "only here" in chief.value
    assert worker.exit_code == 1


def test_stacks_are_shown_on_request(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    called: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: called.append(number))
    with core.init(checkpoint_storage=str(tmp_path)):
        os.kill(os.getpid(), signal.SIGUSR1)
        with core.init(checkpoint_storage=str(tmp_path)):
            os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
    shown = capfd.readouterr().err
    assert shown.count("in test_stacks_are_shown_on_request") == 3
    assert called == [signal.SIGUSR1] * 3
    os.kill(os.getpid(), signal.SIGUSR1)
    assert len(called) == 4
    assert capfd.readouterr().err == ""


_IN_NATIVE_CODE = """
import sys
from determined import core
from tests.support.stuck import hang_in_native_code
with core.init(checkpoint_storage=sys.argv[1]):
    print("here", flush=True)
    hang_in_native_code()
"""


@pytest.mark.multiprocess
def test_stacks_are_shown_from_native_code(tmp_path: Path) -> None:
    script, shown = tmp_path / "script.py", tmp_path / "stderr"
    script.write_text(_IN_NATIVE_CODE)
    with (
        shown.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
            deadline = time.monotonic() + 60
            while "in hang_in_native_code" not in shown.read_text():
                assert time.monotonic() < deadline, shown.read_text()
                process.send_signal(signal.SIGUSR1)  # the first may come before it hangs
                time.sleep(0.05)
        finally:
            process.kill()


def test_alerts_have_a_level(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = core.init(checkpoint_storage=str(tmp_path))
    context.alert("disk", "almost full", "ERROR")
    assert ("determined.core", logging.ERROR, "alert: disk: almost full") in caplog.record_tuples
    with pytest.raises(ValueError, match="`level` must be one of"):
        context.alert("disk", level="loud")


def test_a_trial_takes_storage_and_length_from_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = {"type": "directory", "container_path": str(tmp_path / "store")}
    config = {"checkpoint_storage": storage, "searcher": {"max_length": {"batches": 9}}}
    become_a_task(tmp_path / "info", monkeypatch, config)
    context = core.init()
    assert context.info is not None
    assert context.info.trial.trial_id == 7
    assert context.checkpoint.storage_base == tmp_path / "store"
    assert context.searcher.get_configured_units() is core.Unit.BATCHES


def test_a_trial_without_length_has_no_searcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    become_a_task(tmp_path / "info", monkeypatch, {})
    assert isinstance(core.init().searcher, core.SearcherContextMissing)


def test_several_slots_need_a_distributed_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    become_a_task(tmp_path / "info", monkeypatch, {}, slot_ids=[0, 1])
    with pytest.raises(ValueError, match="2 slot"):
        core.init()


def test_a_task_takes_shared_storage_as_a_path_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    become_a_task(tmp_path / "info", monkeypatch, {})
    with pytest.raises(ValueError, match="shared_fs must be given as a path"):
        core.init(checkpoint_storage={"type": "shared_fs", "host_path": str(tmp_path)})


def test_a_trial_of_the_platform_reports_to_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    become_a_task(tmp_path / "info", monkeypatch, {}, task_type="TRIAL")
    monkeypatch.setenv("DET_RUN_DIR", str(tmp_path))

    def train() -> None:
        with core.init(checkpoint_storage=str(tmp_path / "checkpoints")) as context:
            context.train.report_training_metrics(1, {"loss": 1.0})
            assert context.train.get_tensorboard_path().parts[-4:] == (
                "experiment", "3", "trial", "7",
            )  # fmt: skip
            context.profiler.on(sampling_interval=60)
            raise InvalidHP("too large")

    with pytest.raises(SystemExit) as leaving:
        train()
    assert leaving.value.code == 0
    (path,) = tmp_path.glob("journal-*")
    kinds = [type(record).__name__ for record in journal.JournalReader(path).records()]
    assert kinds[:3] == ["RunStarted", "Metrics", "EarlyExit"]
    assert "SystemSamples" in kinds, "the profiler's last report comes before the end"


def test_a_task_without_a_run_folder_is_on_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    become_a_task(tmp_path / "info", monkeypatch, {}, task_type="TRIAL")
    monkeypatch.delenv("DET_RUN_DIR", raising=False)
    with core.init(checkpoint_storage=str(tmp_path / "checkpoints")) as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
    assert not list(tmp_path.rglob("journal-*"))
