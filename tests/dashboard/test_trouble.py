"""A store or a machine that cannot be read: one sentence, and the dashboard stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.platform.homes.home import Home
from determined.store import Writer
from tests.dashboard.served import served
from tests.support import old_homes


def test_an_older_store_says_who_updates_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    old_homes.unpack(1, home)
    with served(Home(home), is_whole=False) as shown:
        answer = shown.client.get("/api/experiments")
        assert answer.status_code == 503
        assert "older schema" in answer.json()["error"]
        assert answer.json()["next"] == "`det supervisor start`"
        assert shown.client.get("/queue").status_code == 200
    assert not (home / "supervisor.log").exists()


def test_a_damaged_store_is_told_and_nothing_falls_over(tmp_path: Path) -> None:
    Writer(tmp_path).close()
    with served(Home(tmp_path)) as shown:
        assert shown.json("/api/experiments")["total"] == 0
        with (tmp_path / "store.db").open("r+b") as store:
            store.seek(4096)
            store.write(b"\xff" * 200_000)
        answers = [shown.client.get(f"/api/experiments?search={n}") for n in range(6)]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert all(answer.status_code == 503 for answer in refused)
        assert all("store" in answer.json()["error"] for answer in refused)
        assert shown.client.get("/").status_code == 200


def test_a_wrong_number_of_slots_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_SLOTS", "many")
    with served(Home(tmp_path), is_whole=False) as shown:
        for path in ("/api/session", "/api/queue"):
            answer = shown.client.get(path)
            assert answer.status_code == 503
            assert "DET_SLOTS" in answer.json()["error"]


def test_a_log_that_may_not_be_read_is_told(shown_log_folder: Path, tmp_path: Path) -> None:
    with served(Home(tmp_path)) as shown:
        (shown_log_folder / "log").mkdir()
        answer = shown.client.get("/api/trials/1/logs")
        assert answer.status_code == 503
        assert str(shown_log_folder / "log") in answer.json()["error"]


@pytest.fixture
def shown_log_folder(tmp_path: Path) -> Path:
    from tests.store.homes import a_home

    folder = tmp_path / "run"
    folder.mkdir()
    with a_home(tmp_path) as home:
        trial = home.new_trial()
        with home.writer.transaction() as tx:
            tx.create_run(trial.id, folder=str(folder), slots=[], steps_completed=0)
    return folder


def test_a_fault_of_ours_is_told_with_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from determined.dashboard.view import View

    with served(Home(tmp_path)) as shown:

        def broken(self: View) -> None:
            raise RuntimeError("secret details")

        monkeypatch.setattr(View, "supervisor", broken)
        answer = shown.client.get("/api/session")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
