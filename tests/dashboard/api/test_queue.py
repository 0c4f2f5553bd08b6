"""What runs, and why others wait."""

from __future__ import annotations

from tests.dashboard.served import Served


def test_the_queue_tells_what_runs_and_why_others_wait(shown: Served) -> None:
    found = shown.json("/api/queue")
    assert {run["name"] for run in found["running"]} == {"digits-random-running"}
    assert len(found["running"]) == 2
    assert found["waiting_total"] == len(found["waiting"]) == 5
    assert {item["why"] for item in found["waiting"]} == {"no supervisor is running"}
