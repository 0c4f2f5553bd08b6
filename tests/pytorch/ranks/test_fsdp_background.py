"""Checkpoints of sharded models are written while ranks train on, and a kill leaves whole ones."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from determined import pytorch
from determined.storage import SharedFSStorageManager, _crash_points
from tests.support.sharded import ShardedTrial, train
from tests.support.workers import collect_workers, run_workers

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_PERIODS = {"checkpoint_period": pytorch.Batch(2)}


class _HeldBack(ShardedTrial):
    """Rank 1 cannot write until rank 0 has trained two batches more than were saved."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        result = super().train_batch(batch, epoch_idx, batch_idx)
        if batch_idx == 4:
            _may_write.set()
        return result


_may_write = threading.Event()


def _train_while_a_rank_waits(root: Path) -> Any:
    reach = _crash_points.reach

    def wait(name: str) -> None:
        if name == "mid_write" and int(os.environ["RANK"]) == 1:
            assert _may_write.wait(50)
        reach(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("determined.storage._durable.reach", wait)
        trial, path = train(
            root, 6, trial_class=_HeldBack, fit={"checkpoint_period": pytorch.Batch(3)}
        )
    return trial.whole_state(), path


def test_ranks_train_on_while_one_of_them_still_writes(tmp_path: Path) -> None:
    held, _ = run_workers(2, _train_while_a_rank_waits, tmp_path / "held")
    plain, _ = run_workers(2, _train_plainly, tmp_path / "plain", 6)
    torch.testing.assert_close(held[0], plain, rtol=0, atol=0)
    saved = SharedFSStorageManager(tmp_path / "held").list()
    assert [c.manifest.steps_completed for c in saved] == [3, 6]
    assert all(SharedFSStorageManager(tmp_path / "held").verify(c.storage_id) for c in saved)


def _train_plainly(root: Path, batches: int, checkpoint: str | None = None) -> Any:
    return train(root, batches, checkpoint=checkpoint, fit=_PERIODS)[0].whole_state()


def _die(root: Path, victim: int, point: str, hit: int) -> None:
    if int(os.environ["RANK"]) == victim:
        _crash_points._armed, _crash_points._hits_left = point, hit
    train(root, 6, fit=_PERIODS)


# A rank writes two files with each save; the chief, who writes more of them, publishes it.
@pytest.mark.parametrize(
    ("victim", "point", "hit"),
    [(1, "mid_write", 1), (1, "mid_write", 3), (1, "before_fsync", 4), (0, "before_manifest", 2)]
    + [(0, "before_rename", 2), (0, "after_rename", 2)],
)
def test_a_kill_in_a_background_save_leaves_whole_checkpoints(
    tmp_path: Path, victim: int, point: str, hit: int
) -> None:
    storage = tmp_path / "storage"
    outcomes = collect_workers(2, _die, storage, victim, point, hit, deadline_seconds=60)
    assert outcomes[victim].exit_code == -signal.SIGKILL
    assert outcomes[1 - victim].exit_code != 0
    manager = SharedFSStorageManager(storage)
    assert all(manager.verify(c.storage_id) for c in manager.list())
    resumed, _ = run_workers(2, _train_plainly, storage, 6, "latest")
    unbroken, _ = run_workers(2, _train_plainly, tmp_path / "unbroken", 6)
    torch.testing.assert_close(resumed, unbroken, rtol=0, atol=0)
    assert not [p for p in storage.iterdir() if ".tmp-" in p.name]


def _hashes_of_ranks(root: Path) -> Any:
    return train(root, 4, fit=_PERIODS)[1]


def test_hashes_of_all_ranks_are_in_the_checkpoint(tmp_path: Path) -> None:
    from determined._contracts.tensor_hashes import tensor_hashes

    paths = [run_workers(2, _hashes_of_ranks, tmp_path / name)[0] for name in ("one", "two")]
    one, two = map(tensor_hashes, paths)
    assert one == two
    assert {path.split("/")[1] for path in one if path.startswith("shards/")} == {"0", "1"}
    assert {path.split("/")[1] for path in one if path.startswith("ranks/")} == {"0", "1"}
