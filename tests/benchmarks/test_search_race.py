"""The race of searches: real contenders, equal budgets, and numbers that reach file and table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.search.contenders import Run, contenders
from benchmarks.search.report import goals, mean_ranks, paired, regrets
from benchmarks.search.space import SPACE, as_numbers
from benchmarks.search.tasks import Crossing, Synthetic, foresight
from determined.platform.search.sampling.randomness import Stream
from determined.platform.search.space import Space

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.multiprocess
@pytest.mark.slow
def test_a_race_writes_the_losses_of_every_seed(tmp_path: Path) -> None:
    output = tmp_path / "search.json"
    command = [sys.executable, "-m", "benchmarks.search", "--synthetic", "--seeds", "2"]
    done = subprocess.run(
        [*command, "--only", "async_halving", "random + halving", "--output", str(output)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    tasks = json.loads(output.read_text())["tasks"]
    assert len(tasks) == 4
    for found in tasks.values():
        assert set(found["runs"]) == {"ours, async_halving", "optuna, random + halving"}
        for run in found["runs"].values():
            assert len(run["25%"]) == 2
            columns = (run[when] for when in ("10%", "25%", "50%", "100%"))
            assert all(list(row) == sorted(row, reverse=True) for row in zip(*columns, strict=True))
            assert run["path"] == sorted(run["path"], reverse=True)


@pytest.mark.parametrize("name", ["ours, promotion", "ours, auto", "optuna, random + hyperband"])
def test_a_contender_uses_its_budget_and_repeats_with_its_seed(name: str) -> None:
    play, task = contenders()[name], Synthetic("synthetic", 0.0)
    first, second = play(task, 3, 100), play(task, 3, 100)
    assert first.best == second.best
    assert first.best[-1][0] <= 100
    assert first.num_trials > 4


def test_only_results_within_the_budget_count() -> None:
    run = Run(best=[(1, 0.9), (50, 0.5), (120, 0.1)])
    assert (run.at(0), run.at(60), run.at(120)) == (float("inf"), 0.5, 0.1)


def test_points_of_the_table_are_their_own_nearest_neighbours() -> None:
    space, stream = Space(SPACE), Stream(1)
    points = [as_numbers(space.values(space.draw(stream))) for _ in range(50)]
    assert all(0 <= number <= 1 for point in points for number in point)
    assert len({tuple(point) for point in points}) == 50


def test_early_rungs_mislead_where_curves_cross() -> None:
    assert foresight(Crossing("crossing", 4.0), 3) < 0 < foresight(Crossing("late", 12.0), 3) < 0.4
    assert foresight(Synthetic("synthetic", 0.0), 3) > 0.9


def test_regret_is_a_share_of_a_random_configurations() -> None:
    tasks = {
        "one": {"best": 1.0, "typical": 3.0, "runs": {"a": {"50%": [1.0, 2.0]}}},
        "two": {"best": 0.0, "typical": 10.0, "runs": {"a": {"50%": [5.0, 5.0]}}},
    }
    mean, margin = regrets({"tasks": tasks, "thought": {"a": {}}}, "50%")["a"]
    assert mean == pytest.approx((25 + 50) / 2)
    assert margin == pytest.approx(1.96 * 25 / 2)  # the deviation of a mean of two, of two tasks


def test_ranks_and_pairs_compare_equal_seeds() -> None:
    runs = {
        "ours, promotion": {"25%": [1.0, 2.0], "100%": [1.0, 3.0]},
        "ours, async_halving": {"25%": [2.0, 1.0], "100%": [1.0, 4.0]},
    }
    thought = dict.fromkeys(runs, {"new_trial": 0.0, "result": 0.0})
    results = {"seeds": 2, "tasks": {"one": {"runs": runs}}, "thought": thought}
    assert mean_ranks(results, "100%") == {"ours, promotion": 1.25, "ours, async_halving": 1.75}
    assert paired(results, "ours, promotion", "ours, async_halving", "100%") == (1, 1, 0)
    assert goals(results)[-1].endswith("1 / 1 / 0")
