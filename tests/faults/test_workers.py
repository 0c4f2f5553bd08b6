"""Loader workers that die, hang or send nonsense: an error that names the loader, and no orphan."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import re
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, default_collate
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from determined import pytorch
from determined.pytorch import Batch, DataLoader
from tests.support.exact import Case, train, train_in_parts
from tests.support.faults import factor, in_memory, in_turns  # noqa: F401  # a fixture
from tests.support.leftovers import Holdings, assert_nothing_more_than, holdings
from tests.support.trials import LineTrial, line
from tests.support.workers import run_workers

BAD_RECORD = 5
# Set when the batch before that record's is used, so that the error is about no other.
ARRIVED = multiprocessing.get_context("fork").Event()
# Set when the main process waits for the batch of that record: it hears of a worker's death in
# whatever it does.
WAITED_FOR = multiprocessing.get_context("fork").Event()

# There may be fewer cores here.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch looks every five seconds whether workers that went quietly are still there."""
    get: Any = _MultiProcessingDataLoaderIter._try_get_data

    def get_soon(loader: Any, timeout: float = 0.2) -> Any:
        if ARRIVED.is_set():
            WAITED_FOR.set()
        return get(loader, timeout)

    monkeypatch.setattr(_MultiProcessingDataLoaderIter, "_try_get_data", get_soon)
    ARRIVED.clear()
    WAITED_FOR.clear()


LOADERS = ["training", "validation"]


class OwnError(Exception):
    """Cannot be rebuilt from its text alone."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Cargo:
    """Goes into a worker, but not out of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


def break_off(connection: Any, *_: Any) -> None:
    """Die of a batch that is being fetched, in the order of a kill: first files, then the rest."""
    connection.close()
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def go_wrong(how: str) -> Any:
    assert ARRIVED.wait(30), "the batch before was not used"
    assert WAITED_FOR.wait(30), "nobody waits for this one"
    if how == "exit":
        os._exit(1)
    if how == "exit quietly":
        os._exit(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "break off":
        multiprocessing.connection.deliver_challenge = break_off  # type: ignore[assignment]
        return torch.ones(1), torch.ones(1)
    if how == "hang":
        while True:
            time.sleep(3600)
    if how == "raise":
        raise OwnError(1, 2)
    if how == "no shared memory":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        return torch.ones(1), torch.ones(1)
    return {"unknown type": (object(), 1), "cannot be sent": (Cargo(), 1), "nothing": None}[how]


class Records(Dataset[Any]):
    def __init__(self, how: str) -> None:
        self._how = how
        self._data = line(8)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        return go_wrong(self._how) if index == BAD_RECORD else self._data[index]


class Good(Records):
    def __getitem__(self, index: int) -> Any:
        return self._data[index]


class Stream(IterableDataset[Any]):
    def __init__(self, how: str) -> None:
        self._how = how

    def __iter__(self) -> Iterator[Any]:
        data = line(8)
        for index in range(len(data)):
            yield go_wrong(self._how) if index == BAD_RECORD else data[index]


def keep_cargo(samples: list[Any]) -> Any:
    return samples if any(isinstance(x, Cargo) for x, _ in samples) else default_collate(samples)


class WorkedTrial(LineTrial):
    """Reads one of its two data sets through workers that go wrong."""

    which = "training"
    how = ""
    kind: type[Records] | type[Stream] = Records
    workers = 1
    is_persistent = False

    def _loader(self, which: str) -> DataLoader:
        if which != self.which:
            return DataLoader(line(2), batch_size=2)
        return DataLoader(
            self.kind(self.how),
            batch_size=2,
            num_workers=self.workers,
            timeout=1 if self.how == "hang" else 0,
            collate_fn=keep_cargo if self.how == "cannot be sent" else None,
            persistent_workers=self.is_persistent,
            multiprocessing_context="fork",
        )

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        self._note("training", batch_idx)
        return super().train_batch(batch, epoch_idx, batch_idx)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self._note("validation", batch_idx)
        return super().evaluate_batch(batch, batch_idx)

    def _note(self, which: str, batch_idx: int) -> None:
        if which == self.which and batch_idx == BAD_RECORD // 2 - 1:
            ARRIVED.set()

    def build_training_data_loader(self) -> DataLoader:
        return self._loader("training")

    def build_validation_data_loader(self) -> DataLoader:
        return self._loader("validation")


EXPECTED = {
    "exit": r"lost a worker process.*num_workers=0",
    "exit quietly": r"lost a worker process.*num_workers=0",
    "kill": r"lost a worker process.*num_workers=0",
    "break off": r"lost a worker process.*handing over a batch.*num_workers=0",
    "hang": r"for 1 seconds \(`timeout`\).*num_workers=0",
    "raise": r"OwnError",
    "unknown type": r"default_collate",
    "nothing": r"default_collate",
    "cannot be sent": r"lost a worker process.*num_workers=0",
    "no shared memory": r"/torch_\d+",
}


def said(error: BaseException) -> str:
    """Return what a person sees: the message and the notes below it."""
    return " ".join([str(error), *getattr(error, "__notes__", [])]).replace("\n", " ")


def fails(tmp_path: Path, **attributes: Any) -> str:
    before = holdings()
    text = failure(tmp_path, before, type("Trial", (WorkedTrial,), attributes))
    assert_nothing_more_than(before)
    return text


def failure(tmp_path: Path, before: Holdings, trial_class: type[LineTrial]) -> str:
    with pytorch.init(checkpoint_storage=tmp_path / "storage") as context:
        trainer = pytorch.Trainer(trial_class(context), context)
        with pytest.raises(Exception) as raised:  # noqa: PT011  # which one depends on the fault
            trainer.fit(max_length=Batch(6), validation_period=Batch(1))
        # Also while somebody holds the error, and with it all that was on the stack.
        assert holdings().children <= before.children
    return said(raised.value)


@pytest.mark.multiprocess
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("how", "which"), in_turns(EXPECTED, LOADERS))
def test_the_error_names_the_loader_and_the_way_on(tmp_path: Path, which: str, how: str) -> None:
    text = fails(tmp_path, which=which, how=how)
    assert f"build_{which}_data_loader), at batch 2," in text
    assert re.search(EXPECTED[how], text), text


@pytest.mark.multiprocess
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("how", "which"), in_turns(["kill", "hang", "raise"], LOADERS))
def test_so_it_is_with_streams(tmp_path: Path, which: str, how: str) -> None:
    text = fails(tmp_path, which=which, how=how, kind=Stream)
    assert f"build_{which}_data_loader), at batch 2," in text
    assert re.search(EXPECTED[how], text), text


@pytest.mark.multiprocess
@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["kill", "hang"])
def test_so_it_is_with_many_workers_that_stay(tmp_path: Path, how: str) -> None:
    text = fails(tmp_path, which="validation", how=how, workers=3, is_persistent=True)
    assert "build_validation_data_loader), at batch 2," in text


@pytest.mark.multiprocess
def test_a_worker_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    class Trial(WorkedTrial):
        def build_training_data_loader(self) -> DataLoader:
            return DataLoader(line(2), num_workers=1, worker_init_fn=self._start)

        def _start(self, worker: int) -> None:
            raise OwnError(3, 4)

    before = holdings()
    text = failure(tmp_path, before, Trial)
    assert "3 and 4" in text
    assert "build_training_data_loader" in text
    assert_nothing_more_than(before)


@pytest.mark.multiprocess
def test_the_repaired_run_continues_from_before_the_fault_and_ends_the_same(
    tmp_path: Path,
) -> None:
    class Faulty(WorkedTrial):
        how = "kill"

    class Repaired(WorkedTrial):
        def _loader(self, which: str) -> DataLoader:
            return DataLoader(line(8), batch_size=2)

    def fit(trial_class: type[LineTrial], storage: str, **options: Any) -> float:
        with pytorch.init(checkpoint_storage=tmp_path / storage, run_id="run") as context:
            trial = trial_class(context)
            pytorch.Trainer(trial, context).fit(max_length=Batch(6), **options)
        return trial.weight

    with pytest.raises(RuntimeError, match="lost a worker"):
        fit(Faulty, "storage", checkpoint_period=Batch(1))
    resumed = fit(Repaired, "storage", latest_checkpoint="latest")
    assert resumed == fit(Repaired, "other")


def _train_with_slow_probe(folder: Path) -> float:
    """Train where it takes long to find the directory for temporary files, under a lock."""
    os.chdir(folder)
    tempfile.tempdir = None
    probe: Any = tempfile._get_default_tempdir  # type: ignore[attr-defined]

    def probe_slowly() -> Any:
        time.sleep(1)
        return probe()

    tempfile._get_default_tempdir = probe_slowly  # type: ignore[attr-defined]
    with pytorch.init(checkpoint_storage=folder / "storage") as context:
        trial = type("Trial", (WorkedTrial,), {"how": "", "kind": Good})(context)
        pytorch.Trainer(trial, context).fit(max_length=Batch(2))
    return float(trial.weight)


@pytest.mark.multiprocess
@pytest.mark.timeout(60)
def test_no_worker_is_started_while_a_thread_looks_for_temporary_files(tmp_path: Path) -> None:
    run_workers(1, _train_with_slow_probe, tmp_path, process_group=False, deadline_seconds=30)


# Streams that are cut three times, at the places where others go wrong.

EPOCH = 4  # 11 records by 3
CUTS = [1, EPOCH, EPOCH + 1]
WORKERS = [(0, False), (2, False), (2, True), (4, False), (4, True)][:: 1 if factor() > 1 else 2]
KINDS_OF_STREAMS = ["stateful stream", "stream"]


@pytest.mark.multiprocess
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("workers", "kind"), in_turns(WORKERS, KINDS_OF_STREAMS))
def test_a_stream_cut_three_times_is_read_as_if_it_were_whole(
    tmp_path: Path, kind: str, workers: tuple[int, bool]
) -> None:
    num_workers, persistent = workers
    case = Case(kind, num_workers=num_workers, persistent_workers=persistent, validate_every=5)
    whole = train(case, tmp_path / "whole", 2 * EPOCH + 2)
    assert train_in_parts(case, tmp_path / "parts", 2 * EPOCH + 2, CUTS) == whole
