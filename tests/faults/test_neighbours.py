"""Other runs beside this one, trackers that misbehave, memory that ends, versions that differ."""

from __future__ import annotations

import json
import logging
import os
import pickle
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from determined._version import __version__
from determined.errors import CheckpointError, CheckpointNotFound, InvalidCheckpointException
from determined.pytorch import Batch
from determined.pytorch.callbacks import MetricsTracker
from determined.storage import SharedFSStorageManager
from tests.support.hostile import forge, forged_manifest
from tests.support.resumable import Trained, checkpoints, steps
from tests.support.resumable import train as train_here
from tests.support.trials import LineTrial
from tests.support.trials import train as train_line
from tests.support.workers import run_workers

_OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")


def neighbour(folder: Path, work: Callable[[Path, int], Any]) -> Any:
    """Do the work as a process of its own, in the same directory as the others."""
    number = int(os.environ["RANK"])
    for name in _OF_RANKS:
        os.environ.pop(name, None)
    os.chdir(folder)
    torch.set_num_threads(1)
    return work(folder / "storage", number)


def at_once(tmp_path: Path, count: int, work: Callable[[Path, int], Any]) -> list[Any]:
    return run_workers(count, neighbour, tmp_path, work, deadline_seconds=90, process_group=False)


def train_own_run(storage: Path, number: int) -> Trained:
    return train_here(
        storage, 6, seed=number, init={"run_id": f"run-{number}"}, checkpoint_period=Batch(1)
    )


def train_same_run(storage: Path, number: int) -> Trained:
    return train_here(storage, 6, checkpoint_period=Batch(1), latest_checkpoint="latest")


def train_with_events(storage: Path, number: int) -> list[str]:
    with pytorch.init(
        checkpoint_storage=storage, tensorboard_path=storage.parent / "events", run_id=f"{number}"
    ) as context:
        trial = LineTrial(context)
        pytorch.Trainer(trial, context).fit(max_length=Batch(40), reporting_period=Batch(1))
    return []


def save_or_resume(storage: Path, number: int) -> int:
    """One process saves and deletes all the time, the others resume all the time."""
    if number == 0:
        config = {"checkpoint_storage": {"save_trial_latest": 1, "save_trial_best": 0}}
        train_here(storage, 40, checkpoint_period=Batch(1), init={"exp_conf": config})
        return 0
    found = 0
    for _ in range(8):
        try:
            latest = SharedFSStorageManager(storage).latest("run")
            if latest is not None:
                with SharedFSStorageManager(storage).restore_path(latest.storage_id) as path:
                    assert (path / "state_dict.pth").stat().st_size > 0
                    found += 1
        except CheckpointNotFound:  # a newer one came meanwhile
            continue
    return found


@pytest.mark.multiprocess
@pytest.mark.slow
class TestBesideEachOther:
    def test_runs_that_share_directory_and_storage_end_as_if_alone(self, tmp_path: Path) -> None:
        trained = at_once(tmp_path, 3, train_own_run)
        storage = tmp_path / "storage"
        for number, one in enumerate(trained):
            alone = train_here(tmp_path / f"alone-{number}", 6, seed=number)
            assert one == alone
            own = checkpoints(storage, f"run-{number}")
            assert [found.metadata["steps_completed"] for found in own] == [1, 2, 3, 4, 5, 6]
        everything = SharedFSStorageManager(storage)
        assert all(everything.verify(found.storage_id) for found in everything.list())
        assert not list(storage.glob(".*.tmp-*"))

    def test_a_run_that_was_started_twice_is_not_spoilt(self, tmp_path: Path) -> None:
        trained = at_once(tmp_path, 2, train_same_run)
        storage = tmp_path / "storage"
        unbroken = train_here(tmp_path / "alone", 6)
        assert all(one.ends_like(unbroken) for one in trained)
        found = SharedFSStorageManager(storage)
        assert all(found.verify(one.storage_id) for one in found.list())
        assert train_here(storage, 8, latest_checkpoint="latest").ends_like(
            train_here(tmp_path / "longer", 8)
        )

    def test_event_files_of_one_directory_are_not_mixed(self, tmp_path: Path) -> None:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

        at_once(tmp_path, 2, train_with_events)
        files = sorted((tmp_path / "events").rglob("*tfevents*"))
        assert len(files) == 2
        counts = [sum(1 for _ in EventFileLoader(str(file)).Load()) for file in files]
        assert counts[0] == counts[1] > 40

    def test_a_storage_that_changes_all_the_time_can_be_resumed_from(self, tmp_path: Path) -> None:
        at_once(tmp_path, 3, save_or_resume)
        assert steps(tmp_path / "storage")[-1] == 40
        assert train_here(tmp_path / "storage", 41, latest_checkpoint="latest").ends_like(
            train_here(tmp_path / "alone", 41)
        )

    @pytest.mark.timeout(150)
    def test_two_launchers_on_one_machine_do_not_meet(self, tmp_path: Path) -> None:
        script = tmp_path / "job.py"
        script.write_text(_JOB)
        command = [sys.executable, "-m", "determined.launch.torch_distributed"]
        jobs = [
            subprocess.Popen(
                [*command, "--nproc_per_node", "2", "--", str(script), str(number)],
                cwd=tmp_path,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for number in range(2)
        ]
        try:
            outputs = [job.communicate(timeout=120)[0] for job in jobs]
        finally:
            for job in jobs:
                job.kill()
        for number, (job, output) in enumerate(zip(jobs, outputs, strict=True)):
            assert job.returncode == 0, output
            assert output.count(f"job {number} of {number * 2}") == 2, output


_JOB = """
import sys
from determined import core
number = int(sys.argv[1])
with core.init(distributed=core.DistributedContext.from_torch_distributed()) as context:
    for _ in range(50):
        total = sum(context.distributed.allgather(number))
    print(f"job {number} of {total}", flush=True)
"""


# Trackers.


class Leaving(MetricsTracker):
    """Ends its thread in a way that is no `Exception`."""

    where = "record"

    def open(self) -> None:
        if self.where == "open":
            raise SystemExit(3)

    def record(self, report: Any) -> None:
        if self.where == "record":
            raise SystemExit(3)

    def close(self, failed: bool) -> None:
        if self.where == "close":
            raise SystemExit(3)


@pytest.mark.parametrize("where", ["open", "record", "close"])
def test_a_tracker_that_leaves_takes_nothing_along(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    def make(context: Any) -> LineTrial:
        trial = LineTrial(context)
        tracker = type("Tracker", (Leaving,), {"where": where})(context, close_seconds=5)
        trial.callbacks = {"tracker": tracker}
        return trial

    with caplog.at_level(logging.WARNING):
        trial = train_line(make, max_length=Batch(6), reporting_period=Batch(1))
    assert trial.batches == [0, 1, 2, 3, 4, 5]
    assert ("lost" in caplog.text) == (where != "close")


class Blocking(MetricsTracker):
    """Takes its first report and never comes back, until the test is over."""

    def __init__(self, context: Any) -> None:
        super().__init__(context, close_seconds=0.05, queue_size=5)
        self.is_over = threading.Event()

    def record(self, report: Any) -> None:
        self.is_over.wait(30)


def test_a_tracker_that_blocks_holds_nothing_up_and_the_loss_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def make(context: Any) -> LineTrial:
        trial = LineTrial(context)
        trial.callbacks = {"tracker": Blocking(context)}
        return trial

    with caplog.at_level(logging.WARNING):
        trial = train_line(make, max_length=Batch(30), reporting_period=Batch(1))
    tracker: Any = trial.callbacks["tracker"]
    tracker.is_over.set()
    assert len(trial.batches) == 30
    assert "cannot keep up" in caplog.text
    assert "lost 31 of 31 reports" in caplog.text


# Memory.


class Hungry(LineTrial):
    """Wants more memory than there is, at its fourth batch."""

    how = "torch"

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        if batch_idx == 3:
            if self.how == "accelerator":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
            if self.how == "python":
                bytearray(1 << 60)
            torch.ones(1 << 55)
        return super().train_batch(batch, epoch_idx, batch_idx)


@pytest.mark.parametrize("how", ["torch", "python", "accelerator"])
def test_memory_that_ends_is_an_error_that_names_the_batch_and_helps(
    how: str, tmp_path: Path
) -> None:
    hungry = type("Hungry", (Hungry,), {"how": how})
    with pytest.raises((RuntimeError, MemoryError)) as raised:
        train_line(hungry, {"run_id": "run"}, max_length=Batch(6), checkpoint_period=Batch(1))
    if hasattr(raised.value, "__notes__"):  # Python 3.11 and later
        notes = " ".join(raised.value.__notes__)
        assert "batch 3" in notes
        assert "aggregation_frequency" in notes
    trial = train_line(
        LineTrial, {"run_id": "run"}, max_length=Batch(6), latest_checkpoint="latest"
    )
    assert trial.batches == [3, 4, 5]


def starve(storage: Path, number: int) -> str:
    """Save with no memory left for it."""
    train_here(storage, 1)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (48 << 20),) * 2)

    class Swelling(LineTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.more = torch.ones(4 << 20)
            self.hoard = [*getattr(self, "hoard", []), self.more]
            return super().train_batch(batch, epoch_idx, batch_idx)

    try:
        train_line(
            Swelling,
            {"checkpoint_storage": storage, "run_id": "run"},
            max_length=Batch(60),
            checkpoint_period=Batch(1),
        )
    except (RuntimeError, MemoryError, CheckpointError) as error:
        return " ".join([str(error), *getattr(error, "__notes__", ())])
    return "nothing happened"


@pytest.mark.multiprocess
def test_a_process_without_memory_leaves_whole_checkpoints(tmp_path: Path) -> None:
    (said,) = at_once(tmp_path, 1, starve)
    assert "memory" in said
    storage = SharedFSStorageManager(tmp_path / "storage")
    assert all(storage.verify(found.storage_id) for found in storage.list())
    assert len(storage.list("run")) >= 1


# Versions.


def saved(tmp_path: Path) -> Path:
    """Return a checkpoint of the middle of a run, as if the run had been killed later."""
    train_here(tmp_path / "storage", 3, checkpoint_period=Batch(2))
    found, last = checkpoints(tmp_path / "storage")
    shutil.rmtree(tmp_path / "storage" / last.storage_id)
    return tmp_path / "storage" / found.storage_id


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {"determined_version": "99.0.0"},
        {"framework": "torch-99.0.0"},
        {"framework": None, "determined_version": None},
        {"something": "new"},
    ],
    ids=str,
)
def test_a_checkpoint_of_other_releases_in_the_same_format_resumes(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    checkpoint = saved(tmp_path)
    edit(checkpoint / "metadata.json", **changes)
    edit(checkpoint / "run.json", something="new")
    forge(checkpoint)
    resumed = train_here(tmp_path / "storage", 5, latest_checkpoint="latest")
    assert resumed.ends_like(train_here(tmp_path / "alone", 5))


@pytest.mark.parametrize(("file", "newer"), [("manifest.json", 3), ("run.json", 3)])
def test_a_checkpoint_in_a_newer_format_is_refused_with_both_versions(
    tmp_path: Path, file: str, newer: int
) -> None:
    checkpoint = saved(tmp_path)
    if file == "manifest.json":
        (checkpoint / file).write_bytes(forged_manifest(format_version=newer))
    else:
        edit(checkpoint / file, format_version=newer)
        forge(checkpoint)
    words = rf"version {newer}.*up to {newer - 1}.*upgrade"
    with pytest.raises(InvalidCheckpointException, match=words):
        train_here(tmp_path / "storage", 5, latest_checkpoint=checkpoint.name)


def test_a_state_that_only_a_newer_torch_can_read_is_refused_with_the_versions(
    tmp_path: Path,
) -> None:
    from tests.support.hostile import torch_archive

    checkpoint = saved(tmp_path)
    edit(checkpoint / "metadata.json", framework="torch-99.0.0", determined_version="99.0.0")
    (checkpoint / "state_dict.pth").write_bytes(
        torch_archive(b"\x80\x02ctorch._utils\n_rebuild_quantum_tensor\n)R.")
    )
    forge(checkpoint)
    with pytest.raises(InvalidCheckpointException) as raised:
        train_here(tmp_path / "storage", 5, latest_checkpoint=checkpoint.name)
    assert "torch-99.0.0" in str(raised.value)
    assert torch.__version__ in str(raised.value)
    assert __version__ in str(raised.value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_counters_by_any_python_are_read(tmp_path: Path, protocol: int) -> None:
    checkpoint = saved(tmp_path)
    counters = pickle.loads((checkpoint / "trial_state.pkl").read_bytes())
    (checkpoint / "trial_state.pkl").write_bytes(pickle.dumps(counters, protocol))
    forge(checkpoint)
    resumed = train_here(tmp_path / "storage", 3, latest_checkpoint="latest")
    assert len(resumed.losses) == 1
