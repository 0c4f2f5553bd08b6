"""Every kind of entrypoint, with none, one or two slots: real trainings to their end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.lab import Lab, lab
from tests.support.line_trial import LAUNCH, MODEL, TRAIN

__all__ = ["lab"]

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

CORE = """
import determined as det
from determined import core

slots = len(det.get_cluster_info().slot_ids)
ranks = core.DistributedContext.from_torch_distributed() if slots > 1 else None
with core.init(distributed=ranks) as ctx:
    print("ranks", ctx.distributed.size, flush=True)
    for step in (3, 6):
        ctx.train.report_validation_metrics(step, {"loss": 1 / step}) if (
            ctx.distributed.rank == 0
        ) else None
"""
HPARAMS = {"lr": 0.1, "global_batch_size": 4}


def run(lab: Lab, slots: int, entrypoint: Any, script: str, **config: Any) -> int:
    """Run to the end and return the number of ranks that the log speaks of, 0 if it does not."""
    ended = lab.wait(
        lab.create(
            script,
            files={"train.py": TRAIN, "steps.py": CORE},
            entrypoint=entrypoint,
            hyperparameters=HPARAMS,
            resources={"slots_per_trial": slots},
            **config,
        )
    )
    assert ended.state == "COMPLETED", lab.account()
    (trial,) = lab.trials(ended.id)
    reports = lab.service.reader.metrics.reports(trial.id, "validation")
    assert [report.steps_completed for report in reports] == [3, 6]
    (run,) = lab.runs(ended.id)
    said = [line for line in lab.log(run).splitlines() if "ranks" in line.split()]
    return int(said[0].split()[-1]) if said else 0


@pytest.mark.parametrize("slots", [0, 1])
def test_a_python_script(lab: Lab, slots: int) -> None:
    assert run(lab, slots, "python3 train.py", MODEL) == 1


@pytest.mark.parametrize("slots", [1, 2])
def test_a_python_script_through_the_launcher(lab: Lab, slots: int) -> None:
    assert run(lab, slots, f"{LAUNCH} python3 train.py", MODEL) == max(1, slots)


@pytest.mark.parametrize("slots", [2])
def test_a_list_of_words(lab: Lab, slots: int) -> None:
    words = [*LAUNCH.split(), "python3", "train.py"]
    assert run(lab, slots, words, MODEL) == max(1, slots)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_trial_class_with_the_periods_of_the_configuration(lab: Lab, slots: int) -> None:
    single = {"name": "single", "metric": "loss", "max_length": {"batches": 6}}
    periods = {"min_validation_period": {"batches": 3}, "min_checkpoint_period": {"batches": 2}}
    keep = {"type": "shared_fs", "host_path": str(lab.home.checkpoints), "save_trial_latest": 9}
    run(lab, slots, "script:Line", MODEL, searcher=single, checkpoint_storage=keep, **periods)
    (experiment,) = lab.service.reader.experiments().rows
    saved = {row.steps_completed for row in lab.checkpoints(experiment.id)}
    assert {2, 4, 6} <= saved


@pytest.mark.parametrize("slots", [0, 2])
def test_a_core_api_script(lab: Lab, slots: int) -> None:
    command = f"{LAUNCH} python3 steps.py" if slots > 1 else "python3 steps.py"
    assert run(lab, slots, command, "") == max(1, slots)


def test_a_script_for_one_process_with_two_slots_says_what_to_do(lab: Lab) -> None:
    ended = lab.wait(
        lab.create(
            "from determined import core; core.init()",
            resources={"slots_per_trial": 2},
        )
    )
    assert ended.state == "ERROR"
    assert "pass a `distributed` context" in lab.trials(ended.id)[0].reason
