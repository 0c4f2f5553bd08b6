"""Which cluster runs go to: the variable, the file, and messages that name file, line and key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from determined.platform.machines.cluster import ClusterSettings, find_cluster
from determined.platform.machines.machine import find_machine, threads_on
from determined.platform.machines.nodes import Node, NodeTable, load_nodes
from determined.platform.machines.slots import Machine
from determined.platform.runs.folder import RunFolder
from determined.platform.runs.placement import Part, Placement, load_placement, place


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("DET_CLUSTER", raising=False)
    monkeypatch.delenv("DET_CLUSTER_INSECURE", raising=False)
    return Home(tmp_path)


@pytest.mark.parametrize("address", ["auto", "head:6379", "ray://head:10001", "[::1]:6379"])
def test_the_variable_names_a_cluster(
    home: Home, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_cluster(home) is None
    monkeypatch.setenv("DET_CLUSTER", address)
    assert find_cluster(home) == ClusterSettings(address)


def test_the_variable_goes_before_the_file(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home.path / "platform.yaml"
    file.write_text("tracking: off\ncluster: {type: ray, address: 'a:1', slot_type: cpu}\n")
    assert find_cluster(home) == ClusterSettings("a:1", "cpu")
    monkeypatch.setenv("DET_CLUSTER", "b:2")
    settings = find_cluster(home)
    assert settings == ClusterSettings("b:2", "cpu")
    assert str(file) in settings.way_back
    monkeypatch.setenv("DET_CLUSTER", "")  # back to this machine, whatever the file says
    assert find_cluster(home) is None


@pytest.mark.parametrize("address", ["http://head", "head", "head:99999", "head:0", "ray://:1"])
def test_a_bad_variable_is_named(home: Home, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_CLUSTER", address)
    with pytest.raises(DeterminedError, match="DET_CLUSTER: expected auto, host:port or ray://"):
        find_cluster(home)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cluster: yes please", ":1: cluster: expected keys and values"),
        ("cluster:\n  type: pbs", ":2: cluster.type: expected ray or slurm, got 'pbs'"),
        ("cluster:\n  type: ray\n  adress: a:1", ":3: cluster.adress: expected one of the keys"),
        ("cluster:\n  type: ray\n  address: 7", ":3: cluster.address: expected auto, host:port"),
        ("cluster:\n  type: ray\n  address: a:70000", ":3: cluster.address: expected auto, host"),
        ("cluster:\n  type: ray\n  slot_type: tpu", ":3: cluster.slot_type: expected gpu or cpu"),
        ("cluster:\n  type: ray\n  insecure: 1", ":3: cluster.insecure: expected true or false"),
        ("cluster: [", "platform.yaml:"),
    ],
)
def test_a_bad_file_is_refused_with_line_and_key(home: Home, text: str, words: str) -> None:
    file = home.path / "platform.yaml"
    file.write_text(text)
    with pytest.raises(DeterminedError) as caught:
        find_cluster(home)
    assert str(caught.value).startswith(str(file))
    assert words in str(caught.value)


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
