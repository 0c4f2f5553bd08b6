"""Trials side by side."""

from __future__ import annotations

from tests.dashboard.served import Served


def test_trials_of_several_experiments_are_compared(shown: Served) -> None:
    found = shown.json("/api/compare", trials="1,2,30")
    assert [trial["id"] for trial in found["trials"]] == [1, 2, 30]
    assert found["trials"][2]["experiment_name"] == "digits-random-running"
    assert found["differs"]["hparams"]["lr"] == [t["hparams"]["lr"] for t in found["trials"]]
    assert found["differs"]["config"]["searcher.name"] == ["adaptive_asha"] * 2 + ["random"]
    assert "global_batch_size" not in found["differs"]["hparams"]
    assert {"group": "training", "name": "loss", "batches": True} in found["metrics"]
    assert shown.client.get("/api/compare?trials=1,999").status_code == 404
