"""The registry of models."""

from __future__ import annotations

from tests.dashboard.served import Served


def test_models_have_versions(shown: Served) -> None:
    (row,) = shown.json("/api/models")["rows"]
    found = shown.json("/api/models/digits-net")
    assert row["num_versions"] == len(found["versions"]) == 2
    assert found["versions"][0] == found["latest"]
    assert found["versions"][0]["experiment_id"] == 1
