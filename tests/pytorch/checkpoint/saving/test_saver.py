"""Saving beside training: what the loop waits for, what happens when a save fails."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import core, pytorch
from determined.errors import CheckpointError, InvalidHP
from determined.pytorch._callback import Hooks, PyTorchCallback
from determined.pytorch._checkpoint.files.reading import read_counters
from determined.pytorch._checkpoint.saving.job import SaveJob
from determined.pytorch._checkpoint.saving.saver import Saver
from determined.pytorch._checkpoint.state.training_state import RunRecord
from determined.pytorch._schedule import _TrialState
from determined.storage import Manifest, SharedFSStorageManager
from tests.support.resumable import (
    ResumableTrial,
    Trained,
    checkpoints,
    fingerprint,
    steps,
    train,
    trial_in_working_directory,
)

DEADLINE_SECONDS = 30


class SlowStorage(SharedFSStorageManager):
    """Holds every save until `gate` is open, and notes when saves begin and end."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.gate = threading.Event()
        self.log: list[str] = []

    def pre_store_path(self, dst: str) -> Path:
        self.log.append("begin")
        assert self.gate.wait(DEADLINE_SECONDS)
        return super().pre_store_path(dst)

    def post_store_path(self, *args: Any, **kwargs: Any) -> Manifest:
        manifest = super().post_store_path(*args, **kwargs)
        self.log.append("end")
        return manifest


class FailingStorage(SharedFSStorageManager):
    """Fails at the saves whose numbers are given, counted from 1."""

    def __init__(self, base: Path, failing: set[int], error: Exception) -> None:
        super().__init__(base)
        self._failing = failing
        self._error = error
        self._saves = 0

    def pre_store_path(self, dst: str) -> Path:
        self._saves += 1
        if self._saves in self._failing:
            raise self._error
        return super().pre_store_path(dst)


NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
BROKEN = CheckpointError("Cannot write to the disk.")


def make_saver(storage: SharedFSStorageManager, **options: Any) -> Saver:
    context = core.CheckpointContext(core.DummyDistributedContext(), storage)
    saver = Saver(
        context,
        {},
        Hooks({}),
        **{
            "background": True,
            "goes_on_after_errors": False,
            "export": None,
            "code": Path.cwd(),
            "outside_code": [],
            "on_saved": lambda storage_id, job: None,
            **options,
        },
    )
    saver.start()
    return saver


def make_job(weights: torch.Tensor, batches: int = 1) -> SaveJob:
    return SaveJob(
        tensors={"models_state_dict": [{"weights": weights}]},
        ranks=[{}],
        state=_TrialState(batches_trained=batches),
        run=RunRecord("run", 0, 1, 1),
        load_data={},
        metadata={"steps_completed": batches, "run_id": "run"},
        is_best=False,
        is_asked_for=True,
    )


def saved_weights(storage: SharedFSStorageManager) -> list[list[float]]:
    files = [storage.base_path / c.storage_id / "state_dict.pth" for c in storage.list()]
    states = [torch.load(file, weights_only=True) for file in files]
    return [state["models_state_dict"][0]["weights"].tolist() for state in states]


def test_the_loop_goes_on_while_files_are_written(tmp_path: Path) -> None:
    storage = SlowStorage(tmp_path)
    saver, weights = make_saver(storage), torch.ones(2)
    saver.save(make_job(weights))
    weights.fill_(7)  # the next training step; storage has not even begun to write
    storage.gate.set()
    saver.finish()
    saver.close()
    assert saved_weights(storage) == [[1, 1]]


def test_counters_of_later_batches_do_not_leak_into_a_save(tmp_path: Path) -> None:
    storage = SlowStorage(tmp_path)
    saver, job = make_saver(storage), make_job(torch.ones(2), batches=3)
    saver.save(job)
    job.state.batches_trained = 100
    job.run.best = 0.5
    storage.gate.set()
    saver.finish()
    saver.close()
    (checkpoint,) = storage.list()
    folder = tmp_path / checkpoint.storage_id
    assert read_counters(folder) == {
        "trial_id": 0,
        "last_ckpt": 0,
        "step_id": 0,
        "last_val": 0,
        "batches_trained": 3,
        "epochs_trained": 0,
    }
    assert '"best": null' in (folder / "run.json").read_text()


def test_one_save_is_under_way_at_a_time(tmp_path: Path) -> None:
    storage = SlowStorage(tmp_path)
    saver, weights = make_saver(storage), torch.zeros(1)
    saver.save(make_job(weights, 1))
    opener = threading.Timer(0.05, storage.gate.set)
    opener.start()
    weights.fill_(1)
    saver.save(make_job(weights, 2))  # waits for the first, or its buffers would be overwritten
    assert storage.log[:2] == ["begin", "end"]
    saver.finish()
    saver.close()
    opener.join()
    assert storage.log == ["begin", "end", "begin", "end"]
    assert saved_weights(storage) == [[0], [1]]


def test_without_background_the_files_are_there_at_once(tmp_path: Path) -> None:
    storage = SharedFSStorageManager(tmp_path)
    saver = make_saver(storage, background=False)
    storage_id = saver.save(make_job(torch.ones(1)))
    assert [c.storage_id for c in storage.list()] == [storage_id]
    saver.close()


@pytest.mark.parametrize("error", [NO_SPACE, BROKEN], ids=["os", "explained"])
def test_a_failure_comes_out_at_the_next_save(tmp_path: Path, error: Exception) -> None:
    saver = make_saver(FailingStorage(tmp_path, {1}, error))
    saver.save(make_job(torch.ones(1)))
    with pytest.raises(type(error), match=str(error.args[-1])):
        saver.save(make_job(torch.ones(1)))
    saver.close()


def test_a_failure_comes_out_at_the_next_boundary_once_it_is_known(tmp_path: Path) -> None:
    storage = FailingStorage(tmp_path, {1}, BROKEN)
    saver = make_saver(storage)
    saver.save(make_job(torch.ones(1)))
    assert saver._pending is not None
    saver._pending.exception(DEADLINE_SECONDS)
    with pytest.raises(CheckpointError):
        saver.raise_failure()
    saver.raise_failure()  # once is enough
    saver.close()


def test_raise_failure_does_not_wait(tmp_path: Path) -> None:
    storage = SlowStorage(tmp_path)
    saver = make_saver(storage)
    saver.save(make_job(torch.ones(1)))
    saver.raise_failure()
    assert storage.log in ([], ["begin"])
    storage.gate.set()
    saver.close()


def test_going_on_after_errors_ends_with_the_last_checkpoint(tmp_path: Path) -> None:
    saver = make_saver(FailingStorage(tmp_path, {1}, BROKEN), goes_on_after_errors=True)
    saver.save(make_job(torch.ones(1)))
    saver.save(make_job(torch.ones(1)))
    saver.finish()
    saver.close()
    saver = make_saver(FailingStorage(tmp_path, {1}, BROKEN), goes_on_after_errors=True)
    saver.save(make_job(torch.ones(1)))
    with pytest.raises(CheckpointError):
        saver.finish()
    saver.close()


def test_closing_waits_for_the_files_and_only_logs_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saver = make_saver(FailingStorage(tmp_path, {2}, BROKEN))
    saver.save(make_job(torch.ones(1)))
    saver.close()
    assert len(checkpoints(tmp_path)) == 1
    saver = make_saver(FailingStorage(tmp_path, {1}, BROKEN))
    saver.save(make_job(torch.ones(1)))
    with caplog.at_level(logging.ERROR):
        saver.close()
    assert "could not be saved: Cannot write to the disk." in caplog.text


def test_what_cannot_be_copied_is_saved_while_training_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saver = make_saver(SharedFSStorageManager(tmp_path))
    job = make_job(torch.ones(1))
    job.tensors["callbacks"] = {"mine": [NoCopies()]}
    for _ in range(2):
        assert saver.save(job) is not None  # an id: it is there
    saver.close()
    assert len(checkpoints(tmp_path)) == 2
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "while training waits" in record.message


class NoCopies:
    """Can be pickled, but not copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise NotImplementedError("no copies")

    def __reduce__(self) -> Any:
        return dict.fromkeys, ("a",)


# The same through `fit`.


def fit_on(
    storage: SharedFSStorageManager,
    batches: int,
    build: Callable[[pytorch.PyTorchTrialContext], ResumableTrial] = ResumableTrial,
    **fit: Any,
) -> Trained:
    with pytorch.init(seed=7, checkpoint_storage=storage.base_path, run_id="run") as context:
        context._core.checkpoint = core.CheckpointContext(context.distributed, storage)
        trial = build(context)
        options = {"checkpoint_policy": "none", "checkpoint_period": pytorch.Batch(1), **fit}
        pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(batches), **options)
    return fingerprint(trial)


class Holding(ResumableTrial):
    """Opens the storage's gate after its own third batch: two batches overtake the first save."""

    storage: SlowStorage

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        metrics = super().train_batch(batch, epoch_idx, batch_idx)
        if batch_idx == 2:
            self.storage.gate.set()
        return metrics


def test_a_background_save_never_sees_later_steps(tmp_path: Path) -> None:
    storage = SlowStorage(tmp_path / "slow")
    Holding.storage = storage
    whole = fit_on(storage, 6, Holding, checkpoint_period=pytorch.Batch([1, 4]))
    train(tmp_path / "exact", 6, checkpoint_period=pytorch.Batch([1, 4]), async_checkpoint=False)
    assert steps(tmp_path / "slow") == steps(tmp_path / "exact") == [1, 4, 6]
    for found in checkpoints(tmp_path / "slow"):
        path = str(tmp_path / "slow" / found.storage_id)
        assert train(tmp_path / "new", 6, latest_checkpoint=path).ends_like(whole)


@pytest.mark.parametrize("error", [NO_SPACE, BROKEN], ids=["os", "explained"])
@pytest.mark.parametrize("background", [True, False])
def test_a_failed_save_ends_training_by_the_next_boundary(
    tmp_path: Path, error: Exception, background: bool
) -> None:
    storage = FailingStorage(tmp_path, {2}, error)
    trained: list[int] = []

    class Counting(ResumableTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            trained.append(batch_idx)
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(type(error), match=str(error.args[-1])):
        fit_on(storage, 9, Counting, async_checkpoint=background)
    assert trained in ([0, 1], [0, 1, 2])
    assert steps(tmp_path) == [1]


@pytest.mark.parametrize("background", [True, False])
def test_training_goes_on_without_a_checkpoint_if_asked_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, background: bool
) -> None:
    storage = FailingStorage(tmp_path, {2, 3}, BROKEN)
    with caplog.at_level(logging.ERROR):
        fit_on(storage, 5, async_checkpoint=background, on_checkpoint_error="continue")
    assert steps(tmp_path) == [1, 4, 5]
    assert caplog.text.count("continues without it") == 2


@pytest.mark.parametrize("background", [True, False])
def test_the_last_checkpoint_must_not_be_lost_in_silence(tmp_path: Path, background: bool) -> None:
    storage = FailingStorage(tmp_path, {3}, BROKEN)
    with pytest.raises(CheckpointError, match="Cannot write"):
        fit_on(storage, 3, async_checkpoint=background, on_checkpoint_error="continue")
    assert steps(tmp_path) == [1, 2]


def test_an_error_in_training_waits_for_the_save_under_way(tmp_path: Path) -> None:
    class Failing(ResumableTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            if batch_idx == 1:
                raise ZeroDivisionError
            return super().train_batch(batch, epoch_idx, batch_idx)

    with pytest.raises(ZeroDivisionError):
        fit_on(SharedFSStorageManager(tmp_path), 3, Failing)
    assert steps(tmp_path) == [1]


class Recorder(PyTorchCallback):
    """What a checkpoint hook saw: the files, and how many batches were trained by then."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log


class OnEnd(Recorder):
    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        self.log.append(sorted(p.name for p in Path(checkpoint_dir).iterdir()))


class OnWriteEnd(Recorder):
    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        (Path(checkpoint_dir) / "mine.txt").write_text("added")
        self.log.append(sorted(p.name for p in Path(checkpoint_dir).iterdir()))


class OnUploadEnd(Recorder):
    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.log.append(uuid)


@pytest.mark.filterwarnings("ignore:.*on_checkpoint_end:FutureWarning")
@pytest.mark.parametrize("kind", [OnEnd, OnWriteEnd, OnUploadEnd])
def test_a_callback_that_needs_the_files_makes_saves_wait(
    tmp_path: Path, kind: type[Recorder]
) -> None:
    log: list[Any] = []

    class Trial(ResumableTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {**self.callbacks, "recorder": kind(log)}

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            assert len(log) == batch_idx  # each save was over before the next batch
            return super().train_batch(batch, epoch_idx, batch_idx)

    fit_on(SharedFSStorageManager(tmp_path), 3, Trial)
    stored = checkpoints(tmp_path)
    assert len(log) == len(stored) == 3
    if kind is OnUploadEnd:
        assert log == [checkpoint.storage_id for checkpoint in stored]
    else:
        assert {"state_dict.pth", "trial_state.pkl", "load_data.json"} <= set(log[0])
        assert "metadata.json" not in log[0]
    if kind is OnWriteEnd:
        for checkpoint in stored:
            assert checkpoint.manifest.contents.files["mine.txt"].size == 5


def test_upload_end_is_not_called_for_a_save_that_failed(tmp_path: Path) -> None:
    log: list[Any] = []

    class Trial(ResumableTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {**self.callbacks, "recorder": OnUploadEnd(log)}

    storage = FailingStorage(tmp_path, {1}, BROKEN)
    fit_on(storage, 2, Trial, on_checkpoint_error="continue")
    assert log == [checkpoint.storage_id for checkpoint in checkpoints(tmp_path)]
    assert len(log) == 1


def test_invalid_hp_while_saving_ends_training_without_another_checkpoint(tmp_path: Path) -> None:
    class Refusing(PyTorchCallback):
        def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
            raise InvalidHP("too large")

    class Trial(ResumableTrial):
        def build_callbacks(self) -> dict[str, PyTorchCallback]:
            return {**self.callbacks, "refusing": Refusing()}

    result = fit_on(SharedFSStorageManager(tmp_path), 3, Trial)
    assert len(result.losses) == 1
    assert steps(tmp_path) == []


def test_checkpoints_of_a_run_share_their_code_and_each_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial_class = trial_in_working_directory(monkeypatch)
    Path("data.bin").write_bytes(bytes(1 << 20))
    Path(".env").write_text("PASSWORD=1")
    storage = SharedFSStorageManager(tmp_path / "storage")
    fit_on(storage, 3, trial_class)
    first, *others = checkpoints(tmp_path / "storage")
    codes = [tmp_path / "storage" / c.storage_id / "code" for c in (first, *others)]
    assert [[path.name for path in code.iterdir()] for code in codes] == [["model_def.py"]] * 3
    assert len({(code / "model_def.py").stat().st_ino for code in codes}) == 1
    storage.delete(first.storage_id, ["**/*"])
    assert all(storage.verify(c.storage_id) for c in others)
    assert (codes[-1] / "model_def.py").read_text().startswith("from")
