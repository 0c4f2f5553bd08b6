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
