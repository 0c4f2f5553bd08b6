"""Verbs of the page on real experiments: what they answer, and what becomes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.dashboard.served import Served, served
from tests.support.lab import Lab, lab

__all__ = ["lab"]

_SCRIPT = """
import time
from determined import core

with core.init() as context:
    for step in range(1, 100_000):
        if step % 20 == 0:
            context.train.report_validation_metrics(step, {"loss": 1 / step})
        if context.preempt.should_preempt():
            break
        time.sleep(0.02)
"""


def _state(shown: Served, experiment_id: int) -> str:
    return str(shown.json(f"/api/experiments/{experiment_id}")["state"])


@pytest.mark.slow
def test_verbs_show_their_effect(lab: Lab) -> None:
    number = lab.create(_SCRIPT, labels=["a"])
    with served(lab.home) as shown:
        lab.until(lambda: _state(shown, number) == "RUNNING")
        assert shown.json("/api/session")["supervisor"]["alive"]

        with shown.client.stream("GET", "/api/events") as answer:
            lines = answer.iter_lines()
            told = next(line for line in lines if line.startswith("data: "))
            assert '"alive":true' in told
            paused = shown.post(f"/api/experiments/{number}/pause")
            assert paused.json() == {"ok": True, "state": "PAUSED"}
            assert any(f'"experiments":[{number}]' in line for line in lines)
        lab.until(lambda: not lab.service.reader.unfinished_runs())

        refused = shown.post(f"/api/experiments/{number}/archive")
        assert refused.status_code == 409
        assert "PAUSED" in refused.json()["error"]

        change = {"name": "new <name>", "notes": "why", "labels": ["b", "b", "c"]}
        answered = shown.client.patch(
            f"/api/experiments/{number}", json=change, headers=shown.verbs
        )
        assert answered.status_code == 200
        found = shown.json(f"/api/experiments/{number}")
        assert (found["name"], found["notes"]) == ("new <name>", "why")
        assert found["labels"] == ["b", "c"]

        assert shown.post(f"/api/experiments/{number}/activate").json()["state"] == "ACTIVE"
        lab.until(lambda: _state(shown, number) == "RUNNING")
        (trial,) = lab.trials(number)
        assert shown.post(f"/api/trials/{trial.id}/kill").status_code == 200
        lab.wait(number)

        verbs = {"verb": "archive", "ids": [number, 99]}
        results = shown.post("/api/experiments/verbs", verbs).json()["results"]
        assert results[str(number)]["ok"]
        assert results["99"] == {"ok": False, "error": results["99"]["error"]}
        assert "99" in results["99"]["error"]
        label = {"verb": "label", "ids": [number], "label": "done"}
        assert shown.post("/api/experiments/verbs", label).json()["results"][str(number)]["ok"]
        found = shown.json(f"/api/experiments/{number}")
        assert found["archived"]
        assert "done" in found["labels"]

        deleted = shown.post(f"/api/experiments/{number}/delete")
        assert deleted.json() == {"ok": True, "state": "DELETED"}
        assert shown.client.get(f"/api/experiments/{number}").status_code == 404


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"verb": "pause"}, "ids"),
        ({"verb": "pause", "ids": ["1"]}, "ids"),
        ({"verb": "pause", "ids": [True]}, "ids"),
        ({"verb": "pause", "ids": list(range(1, 1002))}, "ids"),
        ({"verb": "explode", "ids": [1]}, "verb"),
        ({"verb": "label", "ids": [1]}, "label"),
        ({"verb": "label", "ids": [1], "label": ""}, "label"),
        ({"verb": "pause", "ids": [1], "x": 1}, "x"),
        ({"ids": [1]}, "verb"),
    ],
)
def test_odd_verbs_on_many_are_refused(shown_empty: Served, body: object, word: str) -> None:
    answer = shown_empty.post("/api/experiments/verbs", body)
    assert answer.status_code == 422
    assert word in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("/api/models", {"description": "of what?"}, "name"),
        ("/api/models", {"name": ""}, "name"),
        ("/api/models", {"name": "a\0b"}, "name"),
        ("/api/models", {"name": "\ud800"}, "name"),
        ("/api/models", {"name": "a", "labels": "b"}, "labels"),
        ("/api/models/a/versions", {"checkpoint_uuid": 7}, "checkpoint_uuid"),
        ("/api/tensorboard", {}, "ids"),
        ("/api/tensorboard", {"trials": [0]}, "trials"),
        ("/api/tensorboard", [1], "object"),
    ],
)
def test_bodies_are_refused_by_what_describes_them(
    shown_empty: Served, path: str, body: object, word: str
) -> None:
    content = json.dumps(body)
    answer = shown_empty.client.post(path, content=content, headers=shown_empty.verbs)
    assert answer.status_code == 422
    assert word in answer.json()["error"]


def test_verbs_on_nothing_start_no_supervisor(shown_empty: Served) -> None:
    for path in ("/api/experiments/1/pause", "/api/trials/1/kill", "/api/models/a/delete"):
        assert shown_empty.post(path).status_code == 404
    version = {"checkpoint_uuid": "1"}
    assert shown_empty.post("/api/models/a/versions", version).status_code == 404
    assert shown_empty.post("/api/tensorboard", {"trials": [1]}).status_code == 404
    assert shown_empty.post("/api/experiments/1/explode").status_code == 422
    assert not shown_empty.home.supervisor_log.exists()


def test_a_supervisor_that_does_not_start_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from determined.platform.homes.home import Home
    from tests.store.homes import a_home

    with a_home(tmp_path / "home") as home:
        number = home.experiment_id
        with served(Home(tmp_path / "home")) as shown:
            # The store is in use: a supervisor that starts cannot have it, and ends.
            answer = shown.post(f"/api/experiments/{number}/archive")
    assert answer.status_code == 503
    assert "supervisor" in answer.json()["error"]
