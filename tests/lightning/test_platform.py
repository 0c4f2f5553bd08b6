"""Modules written for Lightning as experiments: killed and paused, alone and on two ranks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning", reason="the extra `lightning` is not installed")

import lightning.pytorch as pl

from tests.support.lab import Lab, lab
from tests.support.lightning_modules import build_loaders, build_module, build_trainer, digest

__all__ = ["lab"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.multiprocess,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("default"),  # Lightning warns of small data
]

_ROOT = Path(__file__).parents[2]
_MODULE = "python3 -m tests.support.lightning_modules"


def create(lab: Lab, hparams: dict[str, Any], **config: Any) -> int:
    variables = [f"PYTHONPATH={_ROOT}", "OMP_NUM_THREADS=1"]
    values: dict[str, Any] = {
        "entrypoint": _MODULE,
        "hyperparameters": hparams,
        "environment": {"environment_variables": variables},
        "searcher": {"name": "single", "metric": "error"},
        "max_restarts": 1,
        **config,
    }
    return lab.create("", **values)


def test_a_module_that_is_killed_and_paused_ends_as_if_nothing_had_happened(lab: Lab) -> None:
    hparams = {"package": "pytorch_lightning", "kill_at": 9, "pause_at": 11}
    experiment = create(lab, hparams)
    lab.until(lambda: any("waiting" in lab.log(run) for run in lab.runs(experiment)))
    lab.service.pause(experiment)
    lab.until(lambda: not lab.service.reader.unfinished_runs())
    (trial,) = lab.trials(experiment)
    assert trial.total_batches == 12, "the batch in which it was asked"
    lab.service.activate(experiment)
    assert lab.wait(experiment).state == "COMPLETED", lab.account()
    runs = lab.runs(experiment)
    assert len(runs) == 3

    pl.seed_everything(5, verbose=False)
    module = build_module(pl)
    build_trainer(pl).fit(module, **build_loaders())
    assert f"weights {digest(module)}" in lab.log(runs[-1])


def test_two_ranks_that_are_killed_end_as_two_that_are_not(lab: Lab) -> None:
    made = [
        create(
            lab,
            {"devices": 2, "strategy": "ddp", "max_epochs": 4, "kill_at": kill_at},
            entrypoint=f"python3 -m determined.launch.torch_distributed {_MODULE}",
            resources={"slots_per_trial": 2},
        )
        for kill_at in (-1, 6)
    ]
    found = []
    for experiment, count in zip(made, (1, 2), strict=True):
        assert lab.wait(experiment).state == "COMPLETED", lab.account()
        runs = lab.runs(experiment)
        assert len(runs) == count
        found.append(set(re.findall(r"weights (\w+)", lab.log(runs[-1]))))
    assert len(found[0]) == 1
    assert found[0] == found[1]
