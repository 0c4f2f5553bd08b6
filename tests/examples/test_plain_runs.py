"""The plain runs are experiments with names, best values and columns in the dashboard."""

from __future__ import annotations

import importlib.util
from urllib.parse import quote

import pytest

from tests.dashboard.served import served
from tests.examples.running import EXAMPLES, percentages
from tests.support import tracked
from tests.support.lab import Lab, lab

__all__ = ["lab"]
pytestmark = [pytest.mark.slow, pytest.mark.multiprocess]

_FOLDER = EXAMPLES / "plain_runs"
_HAS_XGBOOST = importlib.util.find_spec("xgboost") is not None
# Per script: its name, a label, its metric, and what shows that it learned.
_EXPECTED = {
    "sklearn_loop.py": ("digits with scikit-learn", "scikit-learn", "val/accuracy", (0.85, 1)),
    "torch_loop.py": ("digits with torch", "torch", "val/loss", (0, 0.5)),
    "xgboost_callback.py": ("digits with XGBoost", "xgboost", "val/merror", (0, 0.15)),
}


@pytest.mark.parametrize(
    "script",
    [
        "sklearn_loop.py",
        "torch_loop.py",
        pytest.param(
            "xgboost_callback.py",
            marks=pytest.mark.skipif(not _HAS_XGBOOST, reason="needs `pip install xgboost`"),
        ),
    ],
)
def test_a_plain_run_has_its_best_value_and_columns_in_the_dashboard(lab: Lab, script: str) -> None:
    name, label, metric, (low, high) = _EXPECTED[script]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    status, output, errors = tracked.run(lab.home.path, _FOLDER / script, **threads)
    assert (status, errors) == (0, ""), output
    assert percentages(output)
    lab.until(lambda: lab.service.has_store and lab.service.reader.experiment(1))
    lab.wait(1)
    with served(lab.home) as page:
        columns = f"metric:validation.{metric}"
        told = page.json("/api/experiments", columns=columns)
        (row,) = told["rows"]
        assert (row["name"], row["labels"]) == (name, [label])
        assert row["project"]["workspace"] == "examples"
        assert row["project"]["name"] == "plain runs"
        assert (row["state"], row["searcher"]["metric"]) == ("COMPLETED", metric)
        assert low < row["best_validation"] < high
        assert low <= row["columns"][columns] < high
        keys = {column["key"] for column in told["columns"]["available"]}
        assert {key for key in keys if key.startswith("hparam:")}
        assert {key for key in keys if key.startswith("metric:training.train/")}
        (trial,) = lab.trials(1)
        head, _ = page.series(keys=f"{trial.id}:validation:{quote(metric, safe='')}")
        assert head["series"][0]["n"] >= 8
