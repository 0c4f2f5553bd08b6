"""Fine-tuning as experiments: searched, killed and paused, on two ranks; and by hand, killed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra `transformers` is not installed")
pytest.importorskip("accelerate", reason="the extra `transformers` is not installed")

from determined.experimental.client import Determined
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


def pause_and_activate(lab: Lab, experiment: int, line: str) -> None:
    """Pause an experiment whose trial has printed a line; activate it once the trial has stopped.

    Not before: a pause that is taken back at once may never have reached the trial.
    """
    lab.until(lambda: any(line in lab.log(run) for run in lab.runs(experiment)))
    client = Determined(home=lab.home.path)
    client.get_experiment(experiment).pause()
    lab.until(lambda: not lab.service.reader.unfinished_runs())
    assert lab.experiment(experiment).state == "PAUSED", lab.account()
    client.get_experiment(experiment).activate()


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft
def test_an_adapter_that_is_killed_and_paused_ends_as_if_nothing_had_happened(lab: Lab) -> None:
    pytest.importorskip("peft", reason="the extra `transformers` is not installed")
    hparams = {"kind": "lora", "max_steps": 15, "kill_at": 7, "pause_at": 12}
    experiment = create(lab, hparams, max_restarts=1)
    pause_and_activate(lab, experiment, "waiting at step 12")
    assert lab.wait(experiment).state == "COMPLETED", lab.account()
    runs = lab.runs(experiment)
    assert [run.steps_completed for run in runs] == [0, 5, 13], "nothing is logged or saved there"
    assert [run.acknowledged for run in runs] == [False, True, False]
    assert [run.exit_code for run in runs] == [137, 0, 0]

    trainer = build_trainer(build_arguments(lab.folder / "out", max_steps=15), "lora")
    trainer.train()
    assert f"weights {digest(trainer.model)}" in lab.log(runs[-1])


def test_two_ranks_that_are_killed_and_paused_end_as_if_nothing_had_happened(lab: Lab) -> None:
    def begin(**incidents: int) -> int:
        return create(
            lab,
            {"per_device_train_batch_size": 2, "max_steps": 20, "is_augmented": True, **incidents},
            entrypoint=f"python3 -m determined.launch.torch_distributed {_MODULE}",
            resources={"slots_per_trial": 2},
            max_restarts=1,
        )

    def weights(experiment: int) -> list[str]:
        assert lab.wait(experiment).state == "COMPLETED", lab.account()
        found = re.findall(r"weights (\w+)", lab.log(lab.runs(experiment)[-1]))
        assert len(found) == 2
        return list(found)

    broken = begin(kill_at=7, pause_at=11)
    pause_and_activate(lab, broken, "waiting at step 11")
    ends = set(weights(broken))
    runs = lab.runs(broken)
    assert [run.steps_completed for run in runs[:2]] == [0, 5]
    assert 11 < runs[2].steps_completed < 20, "where both ranks could stop"
    assert set(weights(begin())) == ends
    assert len(ends) == 1
    (saved,) = [c for c in lab.checkpoints(broken) if c.steps_completed == 20]
    names = {
        path.name for path in Path(lab.home.checkpoints, saved.uuid, "checkpoint-20").iterdir()
    }
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= names


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
