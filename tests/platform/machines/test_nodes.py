"""Nodes and their slots, as the supervisor saw them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from determined.platform.homes.home import Home
from determined.platform.machines.machine import find_machine, threads_on
from determined.platform.machines.nodes import Node, NodeTable, load_nodes
from determined.platform.machines.slots import Machine


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("DET_CLUSTER", raising=False)
    monkeypatch.delenv("DET_CLUSTER_INSECURE", raising=False)
    return Home(tmp_path)


def node(name: str, num_slots: int = 2, **given: object) -> Node:
    return Node(name, f"host-{name}", "10.0.0.1", num_slots, **given)  # type: ignore[arg-type]


def test_slots_keep_their_numbers_while_nodes_come_and_go(home: Home) -> None:
    table = NodeTable("a:1").updated([node("a"), node("b", 3)])
    table = table.updated([node("b", 3), node("c", 1)])
    assert [(n.id, n.first_slot) for n in table.nodes] == [("b", 1002), ("c", 1005)]
    table = table.updated([node("a"), node("b", 3)])
    assert [[slot.id for slot in n.slots] for n in table.nodes] == [
        [1002, 1003, 1004],
        [1006, 1007],
    ]
    table.save(home.cluster)
    assert load_nodes(home.cluster) == table


def test_clients_see_what_the_supervisor_saw(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_CLUSTER", "a:1")
    assert "has not been contacted yet" in find_machine(home).skipped[0]
    out = node("b", left_out="it is too old.")
    NodeTable("a:1").updated([node("a", cores=8, has_gpus=True), out]).save(home.cluster)
    machine = find_machine(home)
    assert [slot.gpu for slot in machine.slots] == ["GPU 0", "GPU 1"]
    assert machine.skipped == ("Node host-b (10.0.0.1) is not used: it is too old.",)
    assert threads_on(machine, 2) == 2


def test_a_cluster_that_cannot_be_reached_has_no_slots_but_remembers_its_nodes(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_CLUSTER", "a:1")
    known = NodeTable("a:1").updated([node("a")])
    replace(known, trouble="No answer.").save(home.cluster)
    assert find_machine(home) == Machine((), ("No answer.",), is_cluster=True)
    again = load_nodes(home.cluster)
    assert again is not None
    assert again.updated([node("b"), node("a")], known.seen).nodes[0] == known.nodes[0]
