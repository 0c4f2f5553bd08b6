"""Fine-tuning as experiments: searched, and killed on two ranks; and by hand, killed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra `transformers` is not installed")
pytest.importorskip("accelerate", reason="the extra `transformers` is not installed")

from tests.support import tracked
from tests.support.fine_tuning import build_arguments, build_trainer, digest
from tests.support.lab import Lab, lab

__all__ = ["lab"]
pytestmark = [pytest.mark.slow, pytest.mark.multiprocess, pytest.mark.timeout(240)]

_ROOT = Path(__file__).parents[2]
_MODULE = "python3 -m tests.support.fine_tuning"


def create(lab: Lab, hparams: dict[str, Any], **config: Any) -> int:
    values: dict[str, Any] = {
        "entrypoint": _MODULE,
        "hyperparameters": hparams,
        "environment": {
            "environment_variables": [f"PYTHONPATH={_ROOT}", "OMP_NUM_THREADS=1"],
        },
        "searcher": {"name": "single", "metric": "eval_loss"},
        **config,
    }
    return lab.create("", **values)


def test_a_search_stops_worse_trials_and_lets_the_best_one_finish(lab: Lab) -> None:
    searcher = {
        "name": "async_halving",
        "metric": "eval_score",
        "max_trials": 3,
        "max_time": 12,
        "time_metric": "batches",
        "num_rungs": 2,
        "divisor": 2,
        "max_concurrent_trials": 1,
    }
    hparams = {"is_first_best": True, "pause_at": 6, "max_steps": 12}
    experiment = create(lab, hparams, searcher=searcher)
    assert lab.wait(experiment).state == "COMPLETED", lab.account()
    trials = lab.trials(experiment)
    assert [trial.total_batches for trial in trials] == [12, 7, 7], lab.account()
    assert {trial.state for trial in trials} == {"COMPLETED"}
    assert lab.experiment(experiment).best_validation == 1.0


def test_two_ranks_that_are_killed_continue_and_agree_on_the_weights(lab: Lab) -> None:
    hparams = {"per_device_train_batch_size": 2, "dropout": 0.0, "kill_at": 7}
    experiment = create(
        lab,
        hparams,
        entrypoint=f"python3 -m determined.launch.torch_distributed {_MODULE}",
        resources={"slots_per_trial": 2},
        max_restarts=1,
    )
    assert lab.wait(experiment).state == "COMPLETED", lab.account()
    first, second = lab.runs(experiment)
    assert "weights" not in lab.log(first)
    weights = re.findall(r"weights (\w+) norm ([\d.]+)", lab.log(second))
    assert len(weights) == 2
    assert weights[0] == weights[1]
    (saved,) = [c for c in lab.checkpoints(experiment) if c.steps_completed == 12]
    names = {
        path.name for path in Path(lab.home.checkpoints, saved.uuid, "checkpoint-12").iterdir()
    }
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= names
    assert {"det_random_0.pth", "det_random_1.pth"} <= names


def test_a_script_by_hand_that_is_killed_continues_with_latest(lab: Lab) -> None:
    text = "from tests.support.fine_tuning import main\nmain()\n"
    script = tracked.write(lab.folder, text, "tune.py")
    variables = {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"}
    killed = tracked.run(lab.home.path, script, FINE_TUNING=json.dumps({"kill_at": 7}), **variables)
    assert killed[0] == -9, killed
    status, output, errors = tracked.run(lab.home.path, script, **variables)
    assert status == 0, errors

    trainer = build_trainer(build_arguments(lab.folder / "out"))
    trainer.train()
    assert f"weights {digest(trainer.model)}" in output
