"""The dashboard as a whole: a home without anything, and reading that starts nothing."""

from __future__ import annotations

from typing import Any

from determined.platform.homes.home import Home
from tests.dashboard.served import Served, served


def test_a_home_without_a_store_is_shown_as_empty(tmp_path: Any) -> None:
    with served(Home(tmp_path / "none")) as shown:
        assert shown.json("/api/experiments") == {
            "total": 0,
            "rows": [],
            "columns": {"available": []},
        }
        session = shown.json("/api/session")
        assert session["counts"] == {}
        assert session["supervisor"]["alive"] is False
        assert "No supervisor" in session["supervisor"]["text"]
        for path in ("/api/models", "/api/projects", "/api/queue", "/api/export/experiments.csv"):
            assert shown.client.get(path).status_code == 200
        for path in ("/api/experiments/1", "/api/trials/1", "/api/models/x"):
            answer = shown.client.get(path)
            assert answer.status_code == 404
            assert answer.json()["error"]
        assert not (tmp_path / "none" / "store.db").exists()


def test_looking_starts_no_supervisor(shown: Served) -> None:
    from determined.platform.supervisor import presence

    for path in ("/api/session", "/api/experiments/9", "/api/queue", "/api/experiments/9/trials"):
        shown.json(path)
    assert presence.find(shown.home) is None
    assert not shown.home.supervisor_log.exists()
