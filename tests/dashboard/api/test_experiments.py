"""The list of experiments."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dashboard.served import Served


def test_experiments_are_filtered_sorted_and_paged(shown: Served) -> None:
    def names(**params: Any) -> list[str]:
        return [row["name"] for row in shown.json("/api/experiments", **params)["rows"]]

    assert shown.json("/api/experiments")["total"] == 9
    assert len(names(archived=0)) == 8
    assert names(archived=1) == ["speech-old"]
    assert names(search="DIGITS", order="asc") == [
        "digits-adaptive",
        "digits-grid",
        "digits-random-running",
    ]
    assert names(state="RUNNING") == ["digits-random-running"]
    assert names(label="search,digits") == ["digits-adaptive"]
    assert names(unmanaged=1) == ["python train.py"]
    assert names(sort="name", order="asc", limit=2, offset=1) == ["digits-adaptive", "digits-grid"]
    assert names(metric="validation_loss", metric_max=0.2, sort="best")[0] == "digits-adaptive"


@pytest.mark.parametrize("path", ["/api/experiments", "/api/trials"])
def test_the_best_is_sorted_within_each_metric(shown: Served, path: str) -> None:
    rows = shown.json(path, sort="best", order="desc")["rows"]
    best = [row for row in rows if row["best_validation"] is not None]
    assert rows[: len(best)] == best  # what has none comes last
    metrics = [row["searcher"]["metric"] for row in best]
    assert metrics == sorted(metrics)
    assert len(set(metrics)) > 1
    for metric in set(metrics):
        mine = [row for row in best if row["searcher"]["metric"] == metric]
        values = [row["best_validation"] for row in mine]
        assert values == sorted(values, reverse=not mine[0]["searcher"]["smaller_is_better"])


def test_columns_are_those_in_which_rows_differ_first(shown: Served) -> None:
    columns = "hparam:lr,hparam:net.units,metric:validation.accuracy"
    answer = shown.json("/api/experiments", columns=columns, order="asc")
    first = answer["rows"][0]
    trial = shown.json(f"/api/trials/{first['best_trial_id']}")
    assert first["columns"]["hparam:lr"] == trial["hparams"]["lr"]
    accuracy = next(m for m in trial["metrics"] if m["name"] == "accuracy")
    assert first["columns"]["metric:validation.accuracy"] == accuracy["last"]
    flags = [column["differs"] for column in answer["columns"]["available"]]
    assert flags == sorted(flags, reverse=True)
    assert {"hparam:lr", "metric:validation.accuracy"} <= {
        column["key"] for column in answer["columns"]["available"]
    }


def test_small_curves_are_those_of_the_best_trials(shown: Served) -> None:
    found = shown.json("/api/experiments/sparks", ids="1,2,99", px=5)
    assert set(found) == {"1", "2"}
    assert found["1"]["metric"] == "validation_loss"
    assert len(found["1"]["y"]) <= 5
