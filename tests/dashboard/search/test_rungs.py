"""Rungs of a search, and the trials that came to them."""

from __future__ import annotations

from tests.dashboard.served import Served


def test_rungs_keep_the_best_of_those_who_came(shown: Served) -> None:
    found = shown.json("/api/experiments/1/rungs")
    assert found["method"] == "adaptive_asha"
    assert found["unit"] == "batches"
    seen = 0
    for bracket in found["brackets"]:
        for lower, upper in zip(bracket["rungs"], bracket["rungs"][1:], strict=False):
            assert lower["units"] < upper["units"]
            assert lower["kept"] >= upper["seen"]
        for rung in bracket["rungs"]:
            values = [row["metric"] for row in rung["rows"] if row["metric"] is not None]
            assert values == sorted(values)
            assert [row["rank"] for row in rung["rows"]] == list(range(1, len(rung["rows"]) + 1))
            assert all(row["sentence"] for row in rung["rows"])
        seen += bracket["rungs"][0]["seen"]
    assert seen == 16
    assert found["steps"][0]["number"] > found["steps"][-1]["number"]
    assert shown.json("/api/experiments/2/rungs")["brackets"] == []
