"""What is told of one experiment."""

from __future__ import annotations

from tests.dashboard.served import Served


def test_an_experiment_tells_its_best_and_how_to_load_it(shown: Served) -> None:
    found = shown.json("/api/experiments/1")
    trials = shown.json("/api/experiments/1/trials", sort="best")["rows"]
    assert found["best"]["trial_id"] == trials[0]["id"]
    assert found["best"]["value"] == trials[0]["best_validation"] == found["best_validation"]
    assert "load_trial_from_checkpoint_path" in found["best"]["load"]
    assert found["slot_seconds"] > 0
    assert {"group": "validation", "name": "accuracy", "batches": False} in found["metrics"]
    assert {"group": "training", "name": "loss", "batches": True} in found["metrics"]
    by_name = {hparam["name"]: hparam for hparam in found["hparams"]}
    assert by_name["lr"]["type"] == "log"
    assert by_name["lr"]["differs"]
    assert by_name["global_batch_size"]["values"] == [64]
    assert not by_name["global_batch_size"]["differs"]
    assert by_name["net.activation"]["values"] == ["relu", "gelu", "tanh"]
    assert "name: digits-adaptive" in found["config_yaml"]


def test_a_failed_experiment_tells_the_error_of_its_trial(shown: Served) -> None:
    failed = shown.json("/api/experiments", state="ERROR")["rows"][0]["id"]
    error = shown.json(f"/api/experiments/{failed}")["error"]
    trial = shown.json(f"/api/experiments/{failed}/trials")["rows"][0]["id"]
    assert error == shown.json(f"/api/trials/{trial}")["error"]
    assert error["trial_id"] == trial
    assert shown.json("/api/experiments/1")["error"] is None


def test_a_trial_that_the_search_ended_early_is_not_completed(shown: Served) -> None:
    rows = shown.json("/api/experiments/1/trials", limit=100)["rows"]
    words = {row["state"] for row in rows}
    assert words == {"COMPLETED", "STOPPED", "ERROR"}
    for row in rows:
        if row["state"] == "STOPPED":
            assert not row["reason"].startswith("finished")
        elif row["state"] == "COMPLETED":
            assert row["reason"].startswith("finished")
    for word in words:
        chosen = shown.json("/api/experiments/1/trials", state=word, limit=100)["rows"]
        assert [row["id"] for row in chosen] == [r["id"] for r in rows if r["state"] == word]
    counted = shown.json("/api/experiments/1")["states"]
    assert counted == {word: sum(row["state"] == word for row in rows) for word in words}
    assert shown.json("/api/experiments/1/points")["states"] == [row["state"] for row in rows]
