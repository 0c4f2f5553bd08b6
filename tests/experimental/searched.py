"""A small search that is over, for tests that only look at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from determined.experimental.client import Determined, Experiment
from tests.support.lab import Lab

# Validates and saves after 2, 4 and 6 batches; the loss is that of the learning rate.
LEARNS = """
import determined as det
from determined import core

with core.init() as ctx:
    info = det.get_cluster_info()
    lr = info.trial.hparams["lr"]
    print("INFO: starts with", info.trial.hparams, flush=True)
    ctx.train.set_metadata({"seen": {"lr": lr}})
    for steps in range(1, 7):
        ctx.train.report_training_metrics(
            steps, {"loss": lr / steps}, batch_metrics=[{"loss": lr}, {"loss": lr}]
        )
        if steps % 2 == 0:
            accuracy = float("nan") if steps == 4 else steps * lr
            metrics = {"loss": lr + 1 / steps, "accuracy": accuracy}
            ctx.train.report_validation_metrics(steps, metrics)
            with ctx.checkpoint.store_path({"steps_completed": steps, "tag": "x"}) as (path, _):
                (path / "state").write_text(str(steps))
    print("WARNING: <b>ends</b>", flush=True)
"""


@dataclass
class Searched:
    """A home with an experiment of three trials."""

    lab: Lab
    det: Determined
    experiment: Experiment


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Searched]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        patch.setenv("DET_SLOTS", "2")
        patch.delenv("DET_STORAGE", raising=False)
        lab = Lab(tmp_path_factory.mktemp("searched"))
        code = lab.folder / "code"
        code.mkdir()
        (code / "train.py").write_text(LEARNS)
        det = Determined(home=lab.home.path)
        try:
            experiment = det.create_experiment(CONFIG, code)
            experiment.wait(timeout=90, progress=False)
            yield Searched(lab, det, experiment)
        finally:
            lab.close()


CONFIG = """
name: <i>small</i>
description: three rates
labels: [tiny, test]
entrypoint: python3 train.py
max_restarts: 0
hyperparameters:
  lr: {type: categorical, vals: [0.1, 0.2, 0.3]}
  net: {depth: 2, kind: "<script>"}
searcher: {name: grid, metric: loss, max_concurrent_trials: 2}
checkpoint_storage: {save_trial_best: 3, save_trial_latest: 3}
"""


def code_folder(folder: Path, script: str) -> Path:
    """A folder with one script for an experiment."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(script)
    return folder
