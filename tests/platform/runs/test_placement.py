"""Where a run was placed."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.platform.homes.home import Home
from determined.platform.machines.nodes import Node, NodeTable
from determined.platform.runs.folder import RunFolder
from determined.platform.runs.placement import Part, Placement, load_placement, place


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("DET_CLUSTER", raising=False)
    monkeypatch.delenv("DET_CLUSTER_INSECURE", raising=False)
    return Home(tmp_path)


def node(name: str, num_slots: int = 2, **given: object) -> Node:
    return Node(name, f"host-{name}", "10.0.0.1", num_slots, **given)  # type: ignore[arg-type]


def test_a_run_remembers_where_it_was_placed(home: Home) -> None:
    table = NodeTable("a:1").updated([node("a"), node("b", 3)])
    parts = place((1000, 1002, 1003), table.machine, 1)
    assert parts == (
        Part("b", "host-b", "10.0.0.1", (1002, 1003)),
        Part("a", "host-a", "10.0.0.1", (1000,)),
    )
    assert [place((), table.machine, n)[0].node for n in range(3)] == ["a", "b", "a"]
    run = RunFolder(home.path)
    assert load_placement(run) is None
    placement = Placement(parts, code="digest", expects={"torch": "2"}, storage={"type": "s3"})
    placement.save(run)
    assert load_placement(run) == placement
