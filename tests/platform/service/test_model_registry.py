"""Models, versions, workspaces and projects on a real platform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from determined.errors import NotFoundError, RefusedError
from determined.platform.service.model_registry import ModelRegistry
from determined.platform.service.workspaces import Workspaces
from tests.support.lab import Lab, lab

__all__ = ["lab"]
pytestmark = pytest.mark.multiprocess

# Saves three checkpoints, each better than the one before, and waits for its end.
_SAVES = """
import time
from determined import core
with core.init() as ctx:
    for steps in (1, 2, 3):
        ctx.train.report_validation_metrics(steps, {"loss": 1 / steps})
        with ctx.checkpoint.store_path({"steps_completed": steps}) as (path, _):
            (path / "state").write_text(str(steps))
    while not ctx.preempt.should_preempt():
        time.sleep(0.02)
"""


def refuses(message: str, act: Any, *arguments: Any, **named: Any) -> None:
    with pytest.raises(RefusedError, match=message):
        act(*arguments, **named)


def test_a_registered_checkpoint_outlives_the_policy_of_its_experiment(lab: Lab) -> None:
    experiment_id = lab.create(_SAVES)
    lab.until(lambda: len(lab.checkpoints(experiment_id)) == 3)
    first, second, third = (c.uuid for c in lab.checkpoints(experiment_id))
    registry = ModelRegistry(lab.service)
    net = registry.create("net", description="a net", metadata={"size": 3}, labels=["a", "b", "a"])
    assert (net.labels, net.metadata) == (["a", "b"], {"size": 3})
    version = registry.register(net.id, first)
    assert (version.number, version.checkpoint_uuid) == (1, first)
    assert registry.register(net.id, third).number == 2

    lab.service.cancel(experiment_id)
    lab.wait(experiment_id)
    lab.until(lambda: not lab.experiment(experiment_id).gc_is_due)
    lab.until(lambda: not Path(lab.home.checkpoints, second).exists())
    states = {c.uuid: c.state for c in lab.checkpoints(experiment_id)}
    assert states == {first: "COMPLETED", second: "DELETED", third: "COMPLETED"}
    assert Path(lab.home.checkpoints, first, "state").read_text() == "1"

    refuses("is DELETED: it cannot be registered", registry.register, net.id, second)
    with pytest.raises(NotFoundError, match="no checkpoint nothing"):
        registry.register(net.id, "nothing")
    registry.delete_version(registry.version(net, 2).id)
    assert registry.register(net.id, third).number == 3  # a number is never used again
    assert [v.number for v in registry.versions(net.id)] == [3, 1]
    with pytest.raises(NotFoundError, match="'net' has no version 2"):
        registry.version(net, 2)

    registry.change(net.id, archived=True)
    refuses("'net' is archived", registry.register, net.id, third)
    registry.delete(net.id)
    assert registry.models() == []
    assert lab.service.reader.registry.versions_of_checkpoint(third) == []


def test_models_have_names_metadata_notes_and_a_workspace(lab: Lab) -> None:
    registry, workspaces = ModelRegistry(lab.service), Workspaces(lab.service)
    assert (registry.models(), workspaces.all()) == ([], [])
    with pytest.raises(NotFoundError, match="There is no model 'net'"):
        registry.model("net")
    net = registry.create("net")
    assert registry.model(net.id) == registry.model(str(net.id)) == registry.model("net") == net
    refuses("'net' exists already", registry.create, "net")
    for name in ("", "  ", "two\nlines", "x" * 256):
        refuses("A name needs 1 to 255 printable", registry.create, name)
    refuses("looks like an id", registry.create, "17")
    with pytest.raises(ValueError, match="`metadata` must be JSON-serializable"):
        registry.create("other", metadata={"a": object()})
    with pytest.raises(ValueError, match="string keys"):
        registry.add_metadata(net.id, {1: 2})  # type: ignore[dict-item]

    registry.add_metadata(net.id, {"a": 1, "b": {"c": None}})
    registry.add_metadata(net.id, {"a": 2})
    assert registry.model("net").metadata == {"a": 2, "b": {"c": None}}
    registry.remove_metadata(net.id, ["b", "unknown"])
    assert registry.model("net").metadata == {"a": 2}
    research = workspaces.create("research")
    registry.change(net.id, workspace_id=research.id, description="new", labels=["x"])
    changed = registry.model("net")
    assert (changed.workspace_id, changed.description, changed.labels) == (2, "new", ["x"])
    assert changed.updated > net.updated
    refuses("does not exist any more", registry.change, net.id, workspace_id=99)
    refuses("still has projects or models", workspaces.delete, research.id)


def test_workspaces_hold_projects_and_projects_experiments(lab: Lab) -> None:
    workspaces = Workspaces(lab.service)
    experiment_id = lab.create("", workspace="research", project="vision")
    project = workspaces.project("research", "vision")
    assert workspaces.of_id(project.workspace_id).name == "research"
    assert lab.experiment(experiment_id).project_id == project.id
    lab.wait(experiment_id)
    assert workspaces.counts(project.id) == (1, 0)
    refuses("still has experiments", workspaces.delete_project, project.id)
    refuses("still has projects or models", workspaces.delete, project.workspace_id)

    workspaces.change_project(project.id, name="seeing", description="eyes", key="SEE")
    workspaces.add_note(project.id, "todo", "more data")
    workspaces.add_note(project.id, "done", "less data")
    workspaces.remove_note(project.id, "todo")
    refuses("no note named 'todo'", workspaces.remove_note, project.id, "todo")
    changed = workspaces.project("research", "seeing")
    assert (changed.description, changed.key) == ("eyes", "SEE")
    assert changed.notes == [{"name": "done", "contents": "less data"}]

    workspaces.change_project(project.id, archived=True)
    refuses("is archived", lab.create, "", workspace="research", project="seeing")
    workspaces.change(project.workspace_id, archived=True)
    refuses("takes no new projects", workspaces.create_project, project.workspace_id, "x")
    workspaces.change(project.workspace_id, name="study", archived=False)
    other = workspaces.create_project(project.workspace_id, "other", "words")
    refuses("exists already", workspaces.create_project, project.workspace_id, "other")
    workspaces.delete_project(other.id)
    with pytest.raises(NotFoundError, match="no project 'other'"):
        workspaces.project("study", "other")
    for act in (workspaces.delete, workspaces.delete_project):
        refuses("'Uncategorized' cannot be changed", act, 1)
    refuses("'Uncategorized' cannot be changed", workspaces.change_project, 1, name="x")
    refuses("cannot be set: id", workspaces.change, project.workspace_id, id=7)
