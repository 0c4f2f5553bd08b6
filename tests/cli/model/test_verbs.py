"""`det model`, `det workspace` and `det project`."""

from __future__ import annotations

import json

import pytest

from tests.cli.det import run_det
from tests.cli.scripts import STEPS
from tests.support.lab import Lab

pytestmark = pytest.mark.multiprocess


def det(*words: str, code: int = 0) -> str:
    answer = run_det(*words)
    assert answer.returncode == code, answer.stderr
    assert "Traceback" not in answer.stderr
    assert len(answer.stderr.splitlines()) == (1 if code == 1 else 0)
    return answer.stderr if code else answer.stdout


def test_models_and_their_versions(lab: Lab) -> None:
    experiment_id = lab.create(STEPS)
    lab.wait(experiment_id)
    uuid = lab.checkpoints(experiment_id)[-1].uuid
    assert "no models yet" in det("model")
    made = json.loads(det("model", "create", "net", "--description", "a net", "--json"))[0]
    assert (made["name"], made["description"], made["id"]) == ("net", "a net", 1)
    assert "exists already" in det("model", "create", "net", code=1)
    assert "no workspace 'x'" in det("m", "create", "other", "-w", "x", code=1)

    told = det("model", "register-version", "net", uuid)
    assert told == f"Registered checkpoint {uuid} as version 1\n"
    assert "no checkpoint" in det("m", "register-version", "net", "1234", code=1)
    assert "no model 'no'" in det("m", "register-version", "no", uuid, code=1)
    version = json.loads(det("model", "describe", "net", "--json"))["versions"][0]
    assert (version["number"], version["checkpoint_uuid"]) == (1, uuid)
    assert (version["trial_id"], version["experiment_id"]) == (1, experiment_id)
    assert version["metrics"]["loss"] == 0.5 + 1 / 20
    shown = det("model", "describe", "net")
    assert "Version 1 comes from:\n  Trial:            1\n" in shown
    assert '"loss": 0.55' in shown
    assert uuid in det("model", "list-versions", "net")
    assert "no version 7" in det("model", "describe", "net", "--version", "7", code=1)

    told = det("model", "set", "description", "net", "the best")
    assert told == "Set the description of model net\n"
    det("model", "label", "add", "1", "vision")
    told = json.loads(det("model", "label", "add", "net", "edge", "--json"))
    assert (told["description"], told["labels"]) == ("the best", ["vision", "edge"])
    assert "Removed label 'vision' from model net" in det("m", "label", "remove", "net", "vision")
    for field, verb in (("name", "version-name"), ("comment", "comment"), ("notes", "notes")):
        told = json.loads(det("model", "set", verb, "net", "1", f"its {field}", "--json"))
        assert (told["number"], told[field]) == (1, f"its {field}")
    assert "no version 7" in det("model", "set", "notes", "net", "7", "x", code=1)
    described = json.loads(det("model", "describe", "net", "--json"))
    assert described["labels"] == ["edge"]
    assert described["versions"][0]["notes"] == "its notes"

    det("workspace", "create", "research")
    assert "Moved model net" in det("model", "move", "net", "research")
    assert [m["name"] for m in json.loads(det("m", "ls", "-w", "research", "--json"))] == ["net"]
    assert json.loads(det("model", "archive", "net", "--json"))["archived"] is True
    assert json.loads(det("model", "list", "--json")) == []
    listed = json.loads(det("model", "list", "--all", "--sort-by", "name", "--json"))
    assert [m["archived"] for m in listed] == [True]
    told = json.loads(det("model", "delete-version", "net", "1", "--yes", "--json"))
    assert told == {"name": "net", "version": 1}
    assert "Removed model net" in det("model", "delete", "net", "--yes")
    assert "no model 'net'" in det("model", "delete", "net", "--yes", code=1)
    lab.service.close()


def test_workspaces_and_projects() -> None:
    assert json.loads(det("workspace", "list", "--json")) == []
    made = json.loads(det("workspace", "create", "research", "--json"))[0]
    assert (made["name"], made["projects"]) == ("research", 0)
    det("project", "create", "research", "vision", "--description", "eyes")
    found = json.loads(det("workspace", "describe", "research", "--json"))["projects"]
    assert [(p["name"], p["description"]) for p in found] == [("vision", "eyes")]
    listed = det("project", "list", "--csv").splitlines()
    assert listed[0].startswith("ID,Name,Description,Experiments,Active")
    assert "vision" in det("p", "describe", "research", "vision")
    det("project", "create", "research", "audio", "--key", "AUD")
    listed = json.loads(det("project", "list", "research", "--sort-by", "name", "--json"))
    assert [(p["name"], p["key"]) for p in listed][0] == ("audio", "AUD")
    page = ["--order-by", "desc", "--limit", "1", "--pages", "1", "--json"]
    assert [p["name"] for p in json.loads(det("p", "list", "research", *page))] == ["audio"]
    edited = json.loads(det("p", "edit", "research", "audio", "--new_name", "ears", "--json"))
    assert [p["name"] for p in edited] == ["ears"]
    assert "Give --new_name" in run_det("p", "edit", "research", "ears").stderr
    assert "no experiments" in det("project", "list-experiments", "research", "ears")
    det("project", "delete", "research", "ears", "--yes")
    det("w", "edit", "research", "--name", "study", "--agent-uid", "7")
    assert json.loads(det("w", "ls", "--sort-by", "name", "--json"))[-1]["name"] == "study"
    det("w", "edit", "study", "--name", "research")
    assert "one pool" in det("workspace", "bindings", "list", "research", code=1)
    assert "There are no policies" in det("config-policies", "describe", "--x", code=1)
    assert "still has projects" in det("workspace", "delete", "research", "--yes", code=1)
    det("project", "archive", "research", "vision")
    det("project", "unarchive", "research", "vision")
    assert "no project 'x'" in det("project", "delete", "research", "x", "--yes", code=1)
    det("project", "delete", "research", "vision", "--yes")
    det("workspace", "delete", "research", "--yes")
    assert "cannot be changed" in det("workspace", "archive", "Uncategorized", code=1)
    assert "Stopped" in det("supervisor", "stop")
