"""`repeat` on real experiments: one line for each configuration, and whether they differ."""

from __future__ import annotations

import json

import pytest

from determined.experimental.client import Determined
from tests.cli.det import told_by
from tests.support.lab import Lab
from tests.support.searches import check_replay

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

# The seed moves the loss far more than `gain` does: only a paired comparison sees the gain.
_SCRIPT = """
import random
import determined as det
from determined import core

trial = det.get_cluster_info().trial
chance = random.Random(trial.trial_seed)
own = random.Random(f"{trial.trial_seed} {trial.hparams}")
loss = 10 * chance.random() - trial.hparams["gain"] + 0.01 * own.random()
with core.init() as context:
    context.train.report_validation_metrics(1, {"loss": loss})
"""


def _create(lab: Lab, gain: object, repeat: int = 5, seed: int = 1, name: str = "single") -> int:
    number = lab.create(
        _SCRIPT,
        searcher={"name": name, "metric": "loss"},
        hyperparameters={"gain": gain},
        repeat=repeat,
        reproducibility={"experiment_seed": seed},
    )
    assert lab.wait(number).state == "COMPLETED"
    check_replay(lab, number)
    return number


def test_two_experiments_are_compared_on_their_shared_seeds(lab: Lab) -> None:
    first, second = _create(lab, 0.0), _create(lab, 1.0)
    seeds = [[trial.seed for trial in lab.trials(number)] for number in (first, second)]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 5

    told = told_by("e", "compare", str(first), str(second), "--significance")
    assert f"Experiment {second} is better than experiment {first}, beyond noise" in told
    assert "5 shared seeds" in told
    data = json.loads(told_by("e", "compare", f"{first},{second}", "--significance", "--json"))
    (one,) = data["comparisons"]
    assert (one["method"], one["winner"], one["num_a"]) == ("paired", "b", 5)
    assert one["low"] < one["difference"] < one["high"] < 0
    assert one["difference"] == pytest.approx(-1, abs=0.01)

    answer = Determined(home=lab.home.path).compare(first, second)
    assert answer.comparisons[0].winner is answer.configurations[1]
    assert answer.comparisons[0].interval == (one["low"], one["high"])
    assert str(answer) == one["sentence"]

    table = told_by("e", "compare", f"{first},{second}")
    assert len([line for line in table.splitlines() if "5/5" in line]) == 2
    each = json.loads(told_by("e", "compare", f"{first},{second}", "--seeds", "--json"))
    assert len(each) == 10


def test_equal_configurations_and_too_few_seeds_are_no_win(lab: Lab) -> None:
    first, other = _create(lab, 0.5), _create(lab, 0.5, seed=2)
    data = json.loads(told_by("e", "compare", str(first), str(other), "--significance", "--json"))
    assert data["comparisons"][0]["method"] == "welch"
    assert data["comparisons"][0]["sentence"].startswith("the difference is within noise")
    few = _create(lab, 0.7, repeat=2)
    told = told_by("e", "compare", str(first), str(few), "--significance")
    assert "Too few seeds to tell" in told
    assert "nothing to compare" in told_by("e", "compare", str(few), "--significance", code=1)


def test_a_grid_has_one_line_for_each_point_and_compares_the_best(lab: Lab) -> None:
    gains = {"type": "categorical", "vals": [0.0, 0.001, 3.0]}
    number = _create(lab, gains, repeat=4, name="grid")
    rows = json.loads(told_by("e", "compare", str(number), "--json"))
    assert [row["hparams"]["gain"] for row in rows][0] == 3.0
    assert [row["seeds"] for row in rows] == [4, 4, 4]
    assert all(row["spread"] > 0 and len(row["trial_ids"]) == 4 for row in rows)
    data = json.loads(told_by("e", "compare", str(number), "--significance", "--json"))
    assert [one["a"] for one in data["comparisons"]] == [0, 0]
    assert {one["winner"] for one in data["comparisons"]} == {"a"}
    assert data["comparisons"][0]["confidence"] == pytest.approx(1 - 0.05 / 3)
