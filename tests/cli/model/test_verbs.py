"""`det model`."""

from __future__ import annotations

import json

import pytest

from tests.cli.det import told_by
from tests.cli.scripts import STEPS
from tests.support.lab import Lab

pytestmark = pytest.mark.multiprocess


def test_models_and_their_versions(lab: Lab) -> None:
    experiment_id = lab.create(STEPS)
    lab.wait(experiment_id)
    uuid = lab.checkpoints(experiment_id)[-1].uuid
    assert "no models yet" in told_by("model")
    made = json.loads(told_by("model", "create", "net", "--description", "a net", "--json"))[0]
    assert (made["name"], made["description"], made["id"]) == ("net", "a net", 1)
    assert "exists already" in told_by("model", "create", "net", code=1)
    assert "no workspace 'x'" in told_by("m", "create", "other", "-w", "x", code=1)

    told = told_by("model", "register-version", "net", uuid)
    assert told == f"Registered checkpoint {uuid} as version 1\n"
    assert "no checkpoint" in told_by("m", "register-version", "net", "1234", code=1)
    assert "no model 'no'" in told_by("m", "register-version", "no", uuid, code=1)
    version = json.loads(told_by("model", "describe", "net", "--json"))["versions"][0]
    assert (version["number"], version["checkpoint_uuid"]) == (1, uuid)
    assert (version["trial_id"], version["experiment_id"]) == (1, experiment_id)
    assert version["metrics"]["loss"] == 0.5 + 1 / 20
    shown = told_by("model", "describe", "net")
    assert "Version 1 comes from:\n  Trial:            1\n" in shown
    assert '"loss": 0.55' in shown
    assert uuid in told_by("model", "list-versions", "net")
    assert "no version 7" in told_by("model", "describe", "net", "--version", "7", code=1)

    told = told_by("model", "set", "description", "net", "the best")
    assert told == "Set the description of model net\n"
    told_by("model", "label", "add", "1", "vision")
    told = json.loads(told_by("model", "label", "add", "net", "edge", "--json"))
    assert (told["description"], told["labels"]) == ("the best", ["vision", "edge"])
    assert "Removed label 'vision' from model net" in told_by(
        "m", "label", "remove", "net", "vision"
    )
    for field, verb in (("name", "version-name"), ("comment", "comment"), ("notes", "notes")):
        told = json.loads(told_by("model", "set", verb, "net", "1", f"its {field}", "--json"))
        assert (told["number"], told[field]) == (1, f"its {field}")
    assert "no version 7" in told_by("model", "set", "notes", "net", "7", "x", code=1)
    described = json.loads(told_by("model", "describe", "net", "--json"))
    assert described["labels"] == ["edge"]
    assert described["versions"][0]["notes"] == "its notes"

    told_by("workspace", "create", "research")
    assert "Moved model net" in told_by("model", "move", "net", "research")
    assert [m["name"] for m in json.loads(told_by("m", "ls", "-w", "research", "--json"))] == [
        "net"
    ]
    assert json.loads(told_by("model", "archive", "net", "--json"))["archived"] is True
    assert json.loads(told_by("model", "list", "--json")) == []
    listed = json.loads(told_by("model", "list", "--all", "--sort-by", "name", "--json"))
    assert [m["archived"] for m in listed] == [True]
    told = json.loads(told_by("model", "delete-version", "net", "1", "--yes", "--json"))
    assert told == {"name": "net", "version": 1}
    assert "Removed model net" in told_by("model", "delete", "net", "--yes")
    assert "no model 'net'" in told_by("model", "delete", "net", "--yes", code=1)
    lab.service.close()
