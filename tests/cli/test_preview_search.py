"""`det preview-search` and the messages of `det experiment continue`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.det import run_det

_HALVING = """
hyperparameters: {lr: {type: log, base: 10, minval: -4, maxval: -1}}
searcher: {name: adaptive_asha, metric: loss, max_trials: 64, max_time: 64, time_metric: epochs}
"""
_RANDOM = "searcher: {name: random, metric: loss, max_trials: 5, max_length: {epochs: 20}}\n"


@pytest.fixture
def halving(tmp_path: Path) -> Path:
    path = tmp_path / "halving.yaml"
    path.write_text(_HALVING)
    return path


def test_the_table_of_a_halving_search(halving: Path) -> None:
    answer = run_det("preview-search", str(halving))
    assert answer.returncode == 0
    lines = [line.split() for line in answer.stdout.splitlines()]
    table = [line for line in lines if line[1:2] == ["|"] and line[0].isdigit()]
    assert [(line[0], line[2]) for line in table] == [
        ("34", "1"),
        ("20", "4"),
        ("7", "16"),
        ("3", "64"),
    ]
    assert "At most:   64 trials, 4,096 epochs" in answer.stdout
    assert "Predicted: 418 epochs, 10.2% of full training" in answer.stdout
    assert "Simulated: " in answer.stdout
    assert "the first rung is at 1 epochs" in answer.stderr
    assert "max_rungs: 3" in answer.stderr


def test_json_and_overrides(halving: Path) -> None:
    arguments = ["preview-search", str(halving), "--config", "searcher.max_rungs=2", "--json"]
    answer = run_det(*arguments)
    data = json.loads(answer.stdout)
    assert (data["num_trials"], data["unit"], data["most_units"]) == (64, "epochs", 4096)
    assert (min(map(int, data["ends"])), data["warnings"]) == (16, [])
    assert 0 < data["predicted_share"] < 1
    assert 0 < data["estimate"]["share"] < 1


def test_a_search_without_rungs_trains_all_to_completion() -> None:
    answer = run_det("preview-search", "-", stdin=_RANDOM)
    assert answer.stdout.startswith("5 trials, train to completion\n")
    assert "At most:   5 trials, 100 epochs if all of them train to the end" in answer.stdout


def test_what_is_wrong_is_told_without_a_traceback(tmp_path: Path) -> None:
    answer = run_det("preview-search", "-", stdin="searcher: {name: random, metric: loss}\n")
    assert (answer.returncode, "searcher.max_trials" in answer.stderr) == (1, True)
    home = {"DET_HOME": str(tmp_path / "none")}
    answer = run_det("experiment", "continue", "3", environment=home)
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    answer = run_det("experiment", "continue", "3", "--max-trials", "0", environment=home)
    assert answer.returncode == 2


@pytest.mark.parametrize("command", [("preview-search",), ("experiment", "validate")])
def test_values_as_bounds_of_a_log_range_are_told(command: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    entry = "lr: {type: log, minval: 0.0001, maxval: 0.1}"
    path.write_text(f"entrypoint: python3 t.py\n{_RANDOM}hyperparameters: {{{entry}}}\n")
    answer = run_det(*command, str(path))
    assert answer.returncode == 0
    assert "hyperparameters.lr: samples from 1 to 1.259" in answer.stderr
    assert "write `minval: -4, maxval: -1`" in answer.stderr
