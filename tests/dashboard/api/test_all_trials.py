"""The table of all trials."""

from __future__ import annotations

from typing import Any

from tests.dashboard.served import Served


def test_all_trials_are_filtered_by_what_they_are(shown: Served) -> None:
    def found(**params: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = shown.json("/api/trials", limit=1000, **params)["rows"]
        return rows

    everything = found()
    assert len({row["experiment_id"] for row in everything}) > 3
    assert [row["id"] for row in everything] == sorted((r["id"] for r in everything), reverse=True)
    project = shown.json("/api/experiments/1")["project"]["id"]
    assert {row["experiment_name"] for row in found(project=project, search="grid")} == {
        "digits-grid"
    }
    for operator, fits in (("<", float.__lt__), (">=", float.__ge__)):
        low = found(search="digits-adaptive", hparams=f"lr {operator} 0.01")
        assert low
        assert all(fits(row["hparams"]["lr"], 0.01) for row in low)
    relu = found(hparams="net.activation=relu;net.units>100")
    assert relu
    assert all(row["hparams"]["net.activation"] == "relu" for row in relu)
    assert found(hparams="net.activation>0.1") == []  # a word is not a number
    columns = shown.json("/api/trials", project=project)["columns"]["available"]
    assert columns[0] == {"key": "hparam:lr", "label": "lr", "differs": True} or "lr" in {
        one["label"] for one in columns if one["differs"]
    }
    assert shown.client.get("/api/trials", params={"hparams": "lr"}).status_code == 422
    csv = shown.client.get("/api/export/all-trials.csv", params={"search": "digits-grid"}).text
    assert csv.splitlines()[0].count("hparam:lr") == 1
    assert "digits-grid" in csv
