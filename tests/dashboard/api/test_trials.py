"""What is told of trials."""

from __future__ import annotations

import math
from typing import Any

from tests.dashboard.served import Served


def test_a_failed_trial_shows_its_traceback(shown: Served) -> None:
    (row,) = shown.json("/api/experiments/1/trials", state="ERROR")["rows"]
    found = shown.json(f"/api/trials/{row['id']}")
    assert found["error"]["text"].startswith("Traceback")
    line = found["error"]["line"]
    (shown_line,) = shown.json(f"/api/trials/{row['id']}/logs", from_line=line, limit=1)["lines"]
    assert shown_line["text"].startswith("Traceback")
    assert found["run_list"][0]["exit_code"] == 1
    assert found["run_list"][0]["differences"] == []


def test_a_trial_tells_whether_the_platform_started_it(shown: Served) -> None:
    def owner(name: str) -> dict[str, Any]:
        (row,) = shown.json("/api/experiments", search=name)["rows"]
        trials = shown.json(f"/api/experiments/{row['id']}/trials")["rows"]
        found: dict[str, Any] = shown.json(f"/api/trials/{trials[0]['id']}")["experiment"]
        return found

    assert (
        owner("python train.py")["unmanaged"] is True
    )  # so that the page offers no way to kill it
    assert owner("digits-grid")["unmanaged"] is False


def test_a_trial_knows_where_it_stands_and_why(shown: Served) -> None:
    rows = shown.json("/api/experiments/1/trials")["rows"]
    stopped = [row for row in rows if row["decision"].startswith("stopped")]
    assert stopped
    assert all(row["rung"] is not None and row["bracket"] in (0, 1) for row in rows)
    found = shown.json(f"/api/trials/{stopped[0]['id']}")
    assert found["decisions"][-1]["sentence"] == stopped[0]["decision"]
    single = shown.json("/api/experiments/3/trials")["rows"][0]
    assert single["rung"] is None


def test_a_curve_that_became_nan_is_shown_as_far_as_it_goes(shown: Served) -> None:
    trials = shown.json("/api/experiments/2/trials", sort="hparam:lr", order="desc")["rows"]
    _, (columns,) = shown.series(keys=f"{trials[0]['id']}:validation:validation_loss")
    assert [math.isnan(value) for value in columns["y"]] == [False, False] + [True] * 6
    assert trials[0]["best_validation"] is not None
    detail = shown.json(f"/api/trials/{trials[0]['id']}")
    last = {metric["name"]: metric["last"] for metric in detail["metrics"]}
    assert last["accuracy"] == "NaN"


def test_points_are_the_trials_in_columns(shown: Served) -> None:
    points = shown.json("/api/experiments/1/points")
    rows = shown.json("/api/experiments/1/trials", limit=100)["rows"]
    assert points["ids"] == [row["id"] for row in rows]
    assert points["values"] == [row["best_validation"] for row in rows]
    for name, column in points["hparams"].items():
        assert column == [row["hparams"][name] for row in rows]
