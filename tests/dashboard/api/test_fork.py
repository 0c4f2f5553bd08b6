"""The page's way to fork a trial, and the one curve that it draws of a fork."""

from __future__ import annotations

import pytest

from determined.experimental._client.session import Session
from determined.experimental.client import Trial
from tests.dashboard.served import served
from tests.support.forked import create, finished
from tests.support.lab import Lab, lab

__all__ = ["lab"]


@pytest.mark.slow
@pytest.mark.multiprocess
def test_a_trial_is_forked_by_the_page_and_by_the_client(lab: Lab) -> None:
    finished(lab, create(lab))
    with served(lab.home) as shown:
        start = shown.json("/api/trials/1/fork", at=12)
        assert start["batches_again"] == 2
        assert "at batch 10: 2 batches are trained again." in start["text"]
        answer = shown.post("/api/trials/1/fork", {"at": 12, "hparams": {"lr": 0.02}, "name": "x"})
        assert answer.json() == {"experiment_id": 2}
        finished(lab, 2)
        refused = shown.post("/api/trials/1/fork", {"at": 12, "hparams": {"unknown": 1}})
        assert refused.status_code == 409
        assert "no hyperparameter 'unknown'" in refused.json()["error"]
        assert shown.post("/api/trials/1/fork", {"at": 0}).status_code == 422
        assert shown.post("/api/trials/1/fork", {"at": 1, "hparams": 3}).status_code == 422
        lineage = [shown.json(f"/api/trials/{number}")["lineage"] for number in (1, 2)]
        assert lineage[0]["forks"][0]["trial_id"] == lineage[1]["parent"]["trial_id"] + 1 == 2
        names = {(m["group"], m["name"]) for m in shown.json("/api/trials/2")["metrics"]}
        assert ("validation", "loss") in names
        keys = ";".join(f"{number}:training:train_loss" for number in (1, 2))
        _, curves = shown.series(keys=keys)
        before, after = (dict(zip(c["x"], c["y"], strict=True)) for c in curves)
        assert before.keys() == after.keys()
        assert {x for x in before if before[x] == after[x]} == {x for x in before if x <= 12}
    session = Session(lab.home.path)
    forked = Trial(1, session).fork(at=10, hparams={"dropout": 0.1}, name="by the client")
    finished(lab, forked.id)
    assert lab.trials(forked.id)[0].hparams["dropout"] == 0.1
