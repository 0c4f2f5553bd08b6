"""Training data as `Trainer.fit` uses it: where seeds come from, other loaders, bad input."""

from __future__ import annotations

import functools
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import IterableDataset, TensorDataset

from determined import pytorch
from determined.pytorch import DataLoader
from tests.support.exact import Case, ExactTrial, train, train_in_new_process
from tests.support.loader_waits import loader_waits, until_waited_for  # noqa: F401  # a fixture
from tests.support.orders import Noisy, Stream
from tests.support.resumable import checkpoints
from tests.support.trials import LineTrial
from tests.support.workers import collect_workers

TOTAL = 9
needs_notes = pytest.mark.skipif(
    not hasattr(Exception, "add_note"), reason="before Python 3.11 notes are logged"
)


# Seeds.


def test_the_seed_of_the_configuration_is_that_of_init(tmp_path: Path) -> None:
    configured = {"exp_conf": {"reproducibility": {"experiment_seed": 7}}}
    by_init = train(Case(), tmp_path / "init", TOTAL, init={"seed": 7})
    assert train(Case(), tmp_path / "configured", TOTAL, init=configured) == by_init
    assert train(Case(), tmp_path / "other", TOTAL, init={"seed": 8}).samples != by_init.samples


def test_a_run_without_a_seed_continues_with_the_one_it_drew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "determined.pytorch"):
        uncut = train(Case(), tmp_path, TOTAL, init={}, checkpoint_period=pytorch.Batch(5))
    assert "No seed was given; data order derives from seed" in caplog.text
    middle = checkpoints(tmp_path, "exact")[0]
    assert middle.metadata["steps_completed"] == 5
    resumed = train(Case(), tmp_path, TOTAL, 1000, init={}, latest_checkpoint=middle.storage_id)
    assert resumed.losses == uncut.losses[5:]
    assert resumed.samples == uncut.samples[5:]
    assert resumed.validations == uncut.validations[1:]
    assert resumed.end == uncut.end


# Other loaders.


class Stateful:
    """Six batches, and a position of its own; `reads` counts over all objects."""

    reads = 0

    def __init__(self) -> None:
        self.position = 0

    def __iter__(self) -> Iterator[Any]:
        while self.position < 6:
            Stateful.reads += 1
            self.position += 1
            noise = torch.full((3, 2), random.random())
            yield torch.arange(2) + self.position, *noise
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def torch_loader() -> Any:
    return TorchDataLoader(Noisy(7), 2, shuffle=True)


def listed() -> Any:
    return [[torch.tensor([i]), *torch.rand(3, 1)] for i in range(4)]


@pytest.mark.parametrize("build", [Stateful, torch_loader, listed])
def test_any_loader_continues(build: Callable[[], Any], tmp_path: Path) -> None:
    class Trial(ExactTrial):
        def build_training_data_loader(self) -> Any:
            self.context.experimental.disable_dataset_reproducibility_checks()
            torch.manual_seed(1)
            return build()

    def run(name: str, *stops: int | None) -> list[list[Any]]:
        parts = [train(Case(), tmp_path / name, TOTAL, s, trial_class=Trial) for s in stops]
        return [part.samples for part in parts]

    uncut = run("uncut", None)[0]
    before = Stateful.reads
    assert sum(run("cut", 4, 7, None), []) == uncut
    assert Stateful.reads - before in (0, TOTAL)  # those read again would be more


def test_another_loader_needs_permission(tmp_path: Path) -> None:
    class Trial(ExactTrial):
        def build_training_data_loader(self) -> Any:
            return []

    with pytest.raises(RuntimeError, match="disable_dataset_reproducibility_checks"):
        train(Case(), tmp_path, TOTAL, trial_class=Trial)


# Bad input.


def failing(tmp_path: Path, training: Any, validation: Any = None) -> pytest.ExceptionInfo[Any]:
    """Train with these loaders; return the error."""

    class Trial(ExactTrial):
        def build_training_data_loader(self) -> Any:
            self.context.experimental.disable_dataset_reproducibility_checks()
            return training

        def build_validation_data_loader(self) -> Any:
            return super().build_validation_data_loader() if validation is None else validation

    with pytest.raises((RuntimeError, LookupError, ValueError)) as raised:
        train(Case(validate_every=2), tmp_path, TOTAL, trial_class=Trial)
    return raised


def text(raised: pytest.ExceptionInfo[Any]) -> str:
    return " ".join([str(raised.value), *getattr(raised.value, "__notes__", [])])


@needs_notes
@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.multiprocess)])
@pytest.mark.parametrize("index", [-1, 9])
def test_an_index_outside_the_dataset_is_named(
    index: int, num_workers: int, tmp_path: Path
) -> None:
    sampler = [0, 1, 2, index]
    loader = pytorch.DataLoader(Noisy(4), 2, sampler=sampler, num_workers=num_workers)
    message = text(failing(tmp_path, loader))
    assert f"sample {index}" in message
    assert "build_training_data_loader), at batch 1" in message


@needs_notes
def test_an_index_outside_of_tensors_is_named(tmp_path: Path) -> None:
    tensors = TensorDataset(*torch.rand(4, 6))
    loader = pytorch.DataLoader(tensors, 2, sampler=[0, 5, -1, 6])
    message = text(failing(tmp_path, loader))  # -1 is the last one, as in any sequence
    assert "sample 6 of TensorDataset (6 samples)" in message
    assert "at batch 1" in message


@needs_notes
@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.multiprocess)])
def test_an_error_in_validation_data_is_named(num_workers: int, tmp_path: Path) -> None:
    bad = pytorch.DataLoader(Noisy(4), 2, sampler=[0, 1, 2, 9], num_workers=num_workers)
    message = text(failing(tmp_path, Case().build_loader(), bad))
    assert "sample 9" in message
    assert "build_validation_data_loader), at batch 1" in message


@pytest.mark.parametrize(
    "loader",
    [
        [],
        pytorch.DataLoader(Noisy(0), 2),
        pytorch.DataLoader(Noisy(3), 4, drop_last=True),
        pytorch.DataLoader(Noisy(3), 4, sampler=[]),
        pytorch.DataLoader(Stream(0), 4),
    ],
)
def test_data_without_batches_is_an_error(loader: Any, tmp_path: Path) -> None:
    assert "build_training_data_loader() gives no batches" in text(failing(tmp_path, loader))


def test_validation_data_without_batches_is_an_error(tmp_path: Path) -> None:
    empty = pytorch.DataLoader(Noisy(3), 4, drop_last=True)
    assert "build_validation_data_loader" in text(failing(tmp_path, Case().build_loader(), empty))


@pytest.mark.parametrize("kind", ["shuffle", "numpy"])
def test_a_dataset_that_shrank_continues_with_a_warning(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(Case(kind, length=20), tmp_path, TOTAL, 6)
    resumed = train(Case(kind, length=11), tmp_path, TOTAL)
    assert "had 20 samples when the checkpoint was saved and has 11 now" in caplog.text
    assert len(resumed.samples) == 3
    assert max(max(batch) for batch in resumed.samples) < 11


def test_epochs_of_unknown_length_are_refused(tmp_path: Path) -> None:
    with pytorch.init(checkpoint_storage=tmp_path, enable_tensorboard_logging=False) as context:
        trainer = pytorch.Trainer(ExactTrial(context, Case("stream"), None), context)
        with pytest.raises(ValueError, match=r"max_length=Epoch\(2\).*__len__"):
            trainer.fit(max_length=pytorch.Epoch(2))


class Fatal(Noisy):
    """Kills the process that reads sample 6, when its batch is waited for."""

    def __getitem__(self, index: int) -> Any:
        if index == 6:
            self.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)

    def wait(self) -> None:
        until_waited_for(3)


@pytest.mark.multiprocess
@pytest.mark.usefixtures("loader_waits")
@pytest.mark.parametrize("is_training", [True, False])
def test_a_dead_worker_is_an_error_that_names_loader_and_batch(
    is_training: bool, tmp_path: Path
) -> None:
    fatal = pytorch.DataLoader(Fatal(8), 2, num_workers=1)
    well = Case().build_loader()
    raised = failing(tmp_path, fatal) if is_training else failing(tmp_path, well, fatal)
    which = "training" if is_training else "validation"
    assert f"build_{which}_data_loader), at batch" in str(raised.value)
    assert "lost a worker process" in str(raised.value)


class FatalSoon(Fatal):
    """The same in processes that nobody watches: the batches before are on their way."""

    def wait(self) -> None:
        time.sleep(0.3)


class FatalOnOneRank(ExactTrial):
    def build_training_data_loader(self) -> Any:
        dataset = FatalSoon(40) if self.context.distributed.rank == 1 else Noisy(40)
        return pytorch.DataLoader(dataset, 2, num_workers=1)


@pytest.mark.multiprocess
@pytest.mark.slow
def test_a_dead_worker_of_one_rank_ends_all_ranks(tmp_path: Path) -> None:
    train_here = functools.partial(train_in_new_process, trial_class=FatalOnOneRank)
    outcomes = collect_workers(2, train_here, tmp_path, Case(), tmp_path / "storage", TOTAL)
    assert all(outcome.exit_code != 0 for outcome in outcomes)
    assert "lost a worker process" in (outcomes[1].error or "")


class _Three(IterableDataset[Any]):
    """Three records in each pass, and no length."""

    def __iter__(self) -> Iterator[Any]:
        return iter([(torch.ones(1), torch.ones(1))] * 3)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_passes_over_a_stream_without_length_are_counted(num_workers: int, tmp_path: Path) -> None:
    class Trial(LineTrial):
        def build_training_data_loader(self) -> DataLoader:
            return DataLoader(_Three(), batch_size=2, num_workers=num_workers)

    def epochs(start: int, end: int) -> list[int]:
        with pytorch.init(checkpoint_storage=tmp_path, run_id="a") as context:
            trial = Trial(context)
            trainer = pytorch.Trainer(trial, context)
            trainer.fit(max_length=pytorch.Batch(end), latest_checkpoint="latest")
        found = [entry[1] for entry in trial.log if entry[0] == "train_batch"]
        assert trial.batches == list(range(start, end))
        assert trainer.latest_metrics["epochs"] == found[-1]
        return found

    assert epochs(0, 5) == [0, 0, 1, 1, 2]  # two batches make a pass
    assert epochs(5, 8) == [2, 3, 3]
