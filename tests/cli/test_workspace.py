"""`det workspace` and `det project`."""

from __future__ import annotations

import json

import pytest

from tests.cli.det import run_det, told_by

pytestmark = pytest.mark.multiprocess


def test_workspaces_and_projects() -> None:
    assert json.loads(told_by("workspace", "list", "--json")) == []
    made = json.loads(told_by("workspace", "create", "research", "--json"))[0]
    assert (made["name"], made["projects"]) == ("research", 0)
    told_by("project", "create", "research", "vision", "--description", "eyes")
    found = json.loads(told_by("workspace", "describe", "research", "--json"))["projects"]
    assert [(p["name"], p["description"]) for p in found] == [("vision", "eyes")]
    listed = told_by("project", "list", "--csv").splitlines()
    assert listed[0].startswith("ID,Name,Description,Experiments,Active")
    assert "vision" in told_by("p", "describe", "research", "vision")
    told_by("project", "create", "research", "audio", "--key", "AUD")
    listed = json.loads(told_by("project", "list", "research", "--sort-by", "name", "--json"))
    assert [(p["name"], p["key"]) for p in listed][0] == ("audio", "AUD")
    page = ["--order-by", "desc", "--limit", "1", "--pages", "1", "--json"]
    assert [p["name"] for p in json.loads(told_by("p", "list", "research", *page))] == ["audio"]
    edited = json.loads(told_by("p", "edit", "research", "audio", "--new_name", "ears", "--json"))
    assert [p["name"] for p in edited] == ["ears"]
    assert "Give --new_name" in run_det("p", "edit", "research", "ears").stderr
    assert "no experiments" in told_by("project", "list-experiments", "research", "ears")
    told_by("project", "delete", "research", "ears", "--yes")
    told_by("w", "edit", "research", "--name", "study", "--agent-uid", "7")
    assert json.loads(told_by("w", "ls", "--sort-by", "name", "--json"))[-1]["name"] == "study"
    told_by("w", "edit", "study", "--name", "research")
    assert "one pool" in told_by("workspace", "bindings", "list", "research", code=1)
    assert "There are no policies" in told_by("config-policies", "describe", "--x", code=1)
    assert "still has projects" in told_by("workspace", "delete", "research", "--yes", code=1)
    told_by("project", "archive", "research", "vision")
    told_by("project", "unarchive", "research", "vision")
    assert "no project 'x'" in told_by("project", "delete", "research", "x", "--yes", code=1)
    told_by("project", "delete", "research", "vision", "--yes")
    told_by("workspace", "delete", "research", "--yes")
    assert "cannot be changed" in told_by("workspace", "archive", "Uncategorized", code=1)
    assert "Stopped" in told_by("supervisor", "stop")
