"""Replays of a folder's run: the script runs from its checkpoint, as it did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from determined.errors import CheckpointNotFound
from determined.pytorch.replay import replay
from determined.pytorch.replay._folder import open_run
from tests.support.planted import LENGTH, train

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(300)]

_LOOK = """
from determined import pytorch

class Look(pytorch.PyTorchCallback):
    def on_training_batch_end(self, epoch_idx, batch_idx, metrics):
        print("seen", batch_idx, flush=True)
"""


def test_a_replay_from_the_nearest_checkpoint_is_identical(tmp_path: Path) -> None:
    checkpoints = train(tmp_path, "run")
    (tmp_path / "run" / "code" / "train.py").write_text("raise SystemExit('the copy counts')")
    (tmp_path / "looking.py").write_text(_LOOK)
    words = ["--batches", "13:20", "--with", "looking:Look"]
    done = subprocess.run(
        [sys.executable, "-m", "determined.pytorch.replay", str(checkpoints), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("seen")]
    assert seen == list(range(10, 20))
    assert "identical through batch 20 (0 rows and 1 checkpoint compared)" in done.stdout


def test_what_is_not_a_run_or_not_trained_is_refused(tmp_path: Path) -> None:
    checkpoints = train(tmp_path, "run")
    with pytest.raises(CheckpointNotFound, match="no such folder"):
        open_run(tmp_path / "absent")
    with pytest.raises(CheckpointNotFound, match="found these runs: none"):
        open_run(tmp_path)
    with pytest.raises(ValueError, match=rf"1 <= A <= B <= {LENGTH}"):
        replay(checkpoints, (3, LENGTH + 1))
    one = next(path for path in checkpoints.iterdir() if (path / "run.json").exists())
    assert open_run(one) == open_run(checkpoints)
