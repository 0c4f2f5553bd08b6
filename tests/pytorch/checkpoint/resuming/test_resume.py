"""Cut anywhere and resumed, a run ends as if it had never been cut: bit for bit."""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from determined import core, pytorch
from determined.storage import FsspecStorageManager
from tests.support.faults import at_least
from tests.support.resumable import (
    EPOCH_LENGTH,
    ResumableTrial,
    Trained,
    checkpoints,
    fingerprint,
    steps,
    train,
)
from tests.support.workers import run_workers

LENGTH = 3 * EPOCH_LENGTH - 2


class Stopping(ResumableTrial):
    """Stops itself after `stop_after` batches, and notes at which batches it was validated."""

    stop_after = 0
    validated: list[int] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx + 1 == self.stop_after:
            self.context.set_stop_requested(True)
        return super().train_batch(batch, epoch_idx, batch_idx)

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 0:
            self.validated.append(self.callbacks["counter"].batches)
        return super().evaluate_batch(batch, batch_idx)


def train_to(storage: Path, stop_after: int, batches: int = LENGTH, **options: Any) -> Trained:
    """Train `batches`, or stop sooner; a stop request counts at the next report."""
    Stopping.stop_after = stop_after
    options.setdefault("reporting_period", pytorch.Batch(1))
    return train(storage, batches, trial_class=Stopping, **options)


@functools.cache
def unbroken(aggregation: int, validates_every: int = LENGTH) -> Trained:
    """The run to compare with: it saves only at its end.

    It validates at the same batches, because torch's loaders draw a number when they start.
    """
    with tempfile.TemporaryDirectory() as storage:
        return train(
            Path(storage),
            LENGTH,
            aggregation=aggregation,
            validation_period=pytorch.Batch(validates_every),
        )


@pytest.mark.parametrize("aggregation", [1, 3])
def test_every_batch_is_a_place_to_continue_from(tmp_path: Path, aggregation: int) -> None:
    whole = train(tmp_path, LENGTH, aggregation=aggregation, checkpoint_period=pytorch.Batch(1))
    assert whole == unbroken(aggregation)  # saving changes nothing
    found = checkpoints(tmp_path)
    assert [c.metadata["steps_completed"] for c in found] == list(range(1, LENGTH + 1))
    for checkpoint in found:
        path = str(tmp_path / checkpoint.storage_id)
        resumed = train(tmp_path / "new", LENGTH, aggregation=aggregation, latest_checkpoint=path)
        assert resumed.ends_like(whole), checkpoint.metadata["steps_completed"]
        assert len(resumed.losses) == LENGTH - checkpoint.metadata["steps_completed"]


@settings(
    max_examples=at_least(4, 12),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(
    cuts=st.sets(st.integers(1, LENGTH - 1), min_size=1, max_size=4),
    aggregation=st.integers(1, 4),
    validates_every=st.integers(1, LENGTH),
    policy=st.sampled_from(["best", "all", "none"]),
    is_async=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_any_number_of_cuts_changes_nothing(
    cuts: set[int],
    aggregation: int,
    validates_every: int,
    policy: str,
    is_async: bool,
    seed: int,
) -> None:
    with tempfile.TemporaryDirectory() as storage:
        losses: list[float] = []
        sample_ids: list[tuple[int, ...]] = []
        for cut in [*sorted(cuts), 0]:
            part = train_to(
                Path(storage),
                cut,
                aggregation=aggregation,
                # The checkpoint's seed counts, not the one of the process that continues.
                seed=7 if not losses else seed,
                validation_period=pytorch.Batch(validates_every),
                checkpoint_policy=policy,
                metric="error",
                async_checkpoint=is_async,
                latest_checkpoint="latest",
            )
            losses += part.losses
            sample_ids += part.sample_ids
        whole = unbroken(aggregation, validates_every)
        assert part.ends_like(whole)
        assert (tuple(losses), tuple(sample_ids)) == (whole.losses, whole.sample_ids)


@pytest.mark.parametrize("cut", [4, EPOCH_LENGTH, EPOCH_LENGTH + 1, 8])
def test_validations_are_neither_lost_nor_repeated(tmp_path: Path, cut: int) -> None:
    def validated(storage: Path, cuts: list[int]) -> list[int]:
        Stopping.validated = []
        for stop in cuts:
            train_to(
                storage,
                stop,
                validation_period=pytorch.Batch(4),
                checkpoint_policy="all",
                latest_checkpoint="latest",
            )
        return Stopping.validated

    assert validated(tmp_path / "whole", [0]) == [4, 8, 12, 13]
    assert validated(tmp_path / "cut", [cut, 0]) == [4, 8, 12, 13]


def test_epochs_count_on(tmp_path: Path) -> None:
    epochs: list[int] = []

    class Counting(Stopping):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            epochs.append(epoch_idx)
            return super().train_batch(batch, epoch_idx, batch_idx)

    for cut in (2, EPOCH_LENGTH, 7, 0):
        Counting.stop_after = cut
        with pytorch.init(checkpoint_storage=tmp_path, run_id="run") as context:
            pytorch.Trainer(Counting(context), context).fit(
                max_length=pytorch.Epoch(2),
                reporting_period=pytorch.Batch(1),
                checkpoint_policy="none",
                latest_checkpoint="latest",
            )
    assert epochs == [0] * EPOCH_LENGTH + [1] * EPOCH_LENGTH
    assert steps(tmp_path) == [2, 5, 7, 10]


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    whole = train(tmp_path, 4)
    again = train(tmp_path, 4, latest_checkpoint="latest")
    assert again.ends_like(whole)
    assert again.losses == ()
    assert steps(tmp_path) == [4]


def test_latest_of_nothing_starts_from_the_beginning(tmp_path: Path) -> None:
    assert train(tmp_path, LENGTH, latest_checkpoint="latest") == unbroken(1)


def test_latest_of_a_run_started_afresh_is_its_own(tmp_path: Path) -> None:
    train(tmp_path, LENGTH)
    train_to(tmp_path, 3)
    resumed = train(tmp_path, LENGTH, latest_checkpoint="latest")
    assert len(resumed.losses) == LENGTH - 3
    assert resumed.ends_like(unbroken(1))


def test_best_continues_from_the_best(tmp_path: Path) -> None:
    train(
        tmp_path,
        6,
        validation_period=pytorch.Batch(1),
        checkpoint_policy="all",
        metric="error",
    )
    best = min(checkpoints(tmp_path), key=lambda c: c.metadata["metrics"]["error"])
    resumed = train(tmp_path, LENGTH, latest_checkpoint="best", metric="error")
    assert len(resumed.losses) == LENGTH - best.metadata["steps_completed"]


def test_a_run_finds_no_checkpoint_of_another(tmp_path: Path) -> None:
    train(tmp_path, 3, init={"run_id": "other"})
    assert train(tmp_path, LENGTH, latest_checkpoint="latest") == unbroken(1)


def test_a_path_continues_from_a_storage_of_any_kind(tmp_path: Path) -> None:
    """Also when the run's own checkpoints go to an object store."""
    train_to(tmp_path / "local", 4)
    (found,) = checkpoints(tmp_path / "local")
    other = FsspecStorageManager(_memory, f"bucket-{tmp_path.name}", protocol="memory")
    with pytorch.init(checkpoint_storage=tmp_path) as context:
        context._core.checkpoint = core.CheckpointContext(context.distributed, other)
        trial = ResumableTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(LENGTH),
            checkpoint_policy="none",
            latest_checkpoint=str(tmp_path / "local" / found.storage_id),
        )
    assert fingerprint(trial).ends_like(unbroken(1))
    assert len(other.list()) == 1


def _memory() -> Any:
    import fsspec

    return fsspec.filesystem("memory")


def test_a_damaged_newest_checkpoint_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_to(tmp_path, 5, checkpoint_period=pytorch.Batch(1))
    newest = tmp_path / checkpoints(tmp_path)[-1].storage_id / "state_dict.pth"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    resumed = train(tmp_path, LENGTH, latest_checkpoint="latest")
    assert len(resumed.losses) == LENGTH - 4
    assert resumed.ends_like(unbroken(1))
    assert "state_dict.pth is damaged" in caplog.text


# New processes.


def _work_elsewhere(storage: Path) -> None:
    """Checkpoints copy the code of the working directory: have an empty one."""
    (storage / "work").mkdir(parents=True, exist_ok=True)
    os.chdir(storage / "work")


def _train_in_process(storage: Path, stop_after: int, aggregation: int) -> Trained:
    _work_elsewhere(storage)
    return train_to(
        storage,
        stop_after,
        aggregation=aggregation,
        latest_checkpoint="latest",
        validation_period=pytorch.Batch(4),
        checkpoint_policy="best",
        metric="error",
    )


@pytest.mark.multiprocess
def test_new_processes_continue_exactly(tmp_path: Path) -> None:
    cuts = [4, EPOCH_LENGTH]
    parts = [
        run_workers(
            1,
            _train_in_process,
            tmp_path,
            cut,
            3,
            process_group=False,
        )[0]
        for cut in [*cuts, 0]
    ]
    whole = unbroken(3, 4)
    assert parts[-1].ends_like(whole)
    assert tuple(itertools.chain(*(part.losses for part in parts))) == whole.losses


def _train_ranks(storage: Path, stop_after: int, batches: int) -> Trained:
    _work_elsewhere(storage)
    return train_to(storage, stop_after, batches, aggregation=2, latest_checkpoint="latest")


@pytest.mark.multiprocess
def test_two_ranks_continue_exactly_each_with_its_own_randomness(tmp_path: Path) -> None:
    whole = run_workers(2, _train_ranks, tmp_path / "whole", 0, 7)
    assert whole[0].losses != whole[1].losses
    run_workers(2, _train_ranks, tmp_path / "cut", 3, 7)  # inside an aggregation window
    resumed = run_workers(2, _train_ranks, tmp_path / "cut", 0, 7)
    for rank in range(2):
        assert len(resumed[rank].losses) == 4
        assert resumed[rank].ends_like(whole[rank])
