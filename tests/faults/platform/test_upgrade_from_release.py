"""Today's version takes over while a search of 0.2 runs, which ends as a search of today does."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from determined.platform.homes.home import Home
from determined.platform.supervisor import presence
from tests.cli.det import run_det
from tests.faults.platform.installing import install
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]
# The last tree of 0.2 before its modules were moved into packages.
_COMMIT = "e185c3f4cba1afbc399ae7d9504fcd5c558b2223"
_NEXT = "0.3.0"

_CONFIG = """
name: upgraded
entrypoint: model:Net
hyperparameters: {lr: {type: double, minval: 0.01, maxval: 0.2}}
searcher:
  name: async_halving
  metric: validation_loss
  max_trials: 3
  max_concurrent_trials: 1
  time_metric: batches
  max_time: 40
  num_rungs: 2
  divisor: 2
min_validation_period: {batches: 10}
min_checkpoint_period: {batches: 10}
scheduling_unit: 5
reproducibility: {experiment_seed: 7}
max_restarts: 0
"""
# The second trial waits inside a batch, so that the upgrade finds it there.
_MODEL = """
import pathlib, time
import torch
import determined
from determined import pytorch

GATE = pathlib.Path({gate!r})


class Net(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        layers = [torch.nn.Dropout(0.2), torch.nn.Linear(4, 1)]
        self.model = context.wrap_model(torch.nn.Sequential(*layers))
        rate = context.get_hparam("lr")
        optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9)
        self.optimizer = context.wrap_optimizer(optimizer)

    def build_training_data_loader(self):
        x = torch.linspace(-1, 1, 256).reshape(64, 4)
        data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
        return pytorch.DataLoader(data, batch_size=4)

    build_validation_data_loader = build_training_data_loader

    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx == 13 and determined.get_cluster_info().trial.trial_id == 2:
            print("is inside", flush=True)
            while not GATE.exists():
                time.sleep(0.02)
        loss = torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {{"loss": loss}}

    def evaluate_batch(self, batch):
        return {{"validation_loss": torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])}}
"""


def old_tree(folder: Path) -> Path:
    """The sources of 0.2, as git has them."""
    words = ["git", "-C", str(ROOT), "archive", _COMMIT, "src/determined"]
    made = subprocess.run(words, capture_output=True)
    if made.returncode:
        pytest.skip(f"This clone has no commit {_COMMIT[:8]} (0.2): {made.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


class Installation:
    """A home, and `det` of the version that `library` has at the time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, Home(folder / "home")
        self.library, self.gate = folder / "library", folder / "gate"

    def det(self, *words: str, library: Path | None = None) -> str:
        variables = {"DET_HOME": str(self.home.path), "PYTHONPATH": str(library or self.library)}
        done = run_det(*words, environment=variables, cwd=self.folder)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def create(self) -> None:
        code = self.folder / "code"
        code.mkdir()
        (code / "config.yaml").write_text(_CONFIG)
        (code / "model.py").write_text(_MODEL.format(gate=str(self.gate)))
        self.det("e", "create", str(code / "config.yaml"), str(code))

    def state(self) -> str:
        return str(json.loads(self.det("e", "list", "--json"))[0]["state"])

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 100
        while not condition():
            assert time.monotonic() < deadline, self.home.supervisor_log.read_text()
            time.sleep(0.1)


def ends(folder: Path) -> list[tuple[Any, ...]]:
    """What a search came to: hyperparameters, state and metrics of each trial; nothing runs on."""
    lab = Lab(folder)
    try:
        assert lab.wait(1).state == "COMPLETED", lab.account()
        found = []
        for trial in lab.trials(1):
            rows = {
                (group, row.steps_completed): row.metrics
                for group in ("training", "validation")
                for row in lab.service.reader.metrics.reports(trial.id, group)
            }
            found.append((trial.hparams, trial.state, trial.total_batches, rows))
        return found
    finally:
        lab.close()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """What today's version comes to when nothing happens."""
    today = Installation(tmp_path_factory.mktemp("today"))
    install(today.library, _NEXT)
    today.gate.touch()
    today.create()
    return ends(today.folder)


@pytest.mark.parametrize("how", ["beside it", "in its place", "in its place, paused"])
def test_a_search_that_0_2_began_ends_as_one_of_today(
    how: str, tmp_path: Path, expected: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
    monkeypatch.setenv("DET_SLOTS", "2")
    user = Installation(tmp_path)
    shutil.copytree(old_tree(tmp_path / "0.2") / "determined", user.library / "determined")
    user.create()
    user.until(lambda: "is inside" in user.det("e", "logs", "1"))
    old = presence.find(user.home)
    assert old is not None
    assert old.version == "0.2.0"
    if how.endswith("paused"):
        user.det("e", "pause", "1")
        user.gate.touch()
        user.until(lambda: user.state() == "PAUSED")
    newer = tmp_path / "newer" if how == "beside it" else user.library
    newer.parent.mkdir(exist_ok=True)
    install(newer, _NEXT)
    user.det("e", "label", "add", "1", "upgraded", library=newer)
    new = presence.find(user.home)
    assert new is not None
    assert (new.version, new.pid != old.pid) == (_NEXT, True)
    if how.endswith("paused"):
        user.det("e", "activate", "1", library=newer)
    user.gate.touch()
    user.det("e", "wait", "1", library=newer)
    found = ends(tmp_path)
    assert len(found) == 3
    for (hparams, state, length, rows), other in zip(found, expected, strict=True):
        assert (hparams, state) == other[:2]
        steps = sorted(step for group, step in rows if group == "training")
        assert steps == list(range(5, length + 1, 5))
        # When a trial hears that it is stopped depends on the moment, so one may be longer.
        shared = rows.keys() & other[3].keys()
        assert ("validation", 20) in shared
        assert {key: rows[key] for key in shared} == {key: other[3][key] for key in shared}
