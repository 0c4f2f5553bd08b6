"""The nodes of a cluster as its supervisor saw them last: `cluster.json` of the home.

The supervisor writes it whenever a node comes or goes; clients read it, so they need not contact
the cluster. A node's slots have numbers that no other node ever gets: runs are recorded with them.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from determined._os.json_file import write_json
from determined.gpu import CUDA
from determined.platform.machines.slots import CPU, Machine, Slot

_VERSION = 1
# This machine's slots count from 0, and runs on both may be alive at the same time.
_FIRST_SLOT = 1000


@dataclass(frozen=True)
class Node:
    """A machine of the cluster.

    Attributes:
        id: its id in the cluster.
        host: its name; `address` is where other nodes reach it.
        num_slots: how many slots it has, from number `first_slot` on.
        pools: the resource pools that it belongs to.
        left_out: why nothing is started there, if so.
        is_leaving: whether what runs there has to go on elsewhere.
    """

    id: str
    host: str
    address: str
    num_slots: int
    has_gpus: bool = False
    cores: int = 1
    pools: tuple[str, ...] = ()
    left_out: str = ""
    is_leaving: bool = False
    first_slot: int = -1

    @property
    def slots(self) -> tuple[Slot, ...]:
        numbers = range(self.first_slot, self.first_slot + self.num_slots)
        kind = "GPU" if self.has_gpus else None
        return tuple(
            Slot(
                number,
                None if kind is None else f"GPU {number - self.first_slot}",
                self.id,
                self.pools,
            )
            for number in numbers
        )


@dataclass(frozen=True)
class NodeTable:
    """The live nodes, and the numbers of their slots."""

    address: str
    nodes: tuple[Node, ...] = ()
    next_slot: int = _FIRST_SLOT
    home: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    """Distinguishes homes that share a cluster."""
    seen: float = 0.0
    trouble: str = ""
    """Why the cluster cannot be reached, if so: nothing is started then."""

    def updated(self, living: Iterable[Node], now: float | None = None) -> NodeTable:
        """The table with exactly these live nodes; known ones keep their numbers."""
        known = {node.id: node for node in self.nodes}
        number, nodes = self.next_slot, []
        for node in living:
            old = known.get(node.id)
            if old is not None and old.num_slots == node.num_slots:
                nodes.append(replace(node, first_slot=old.first_slot))
            else:
                nodes.append(replace(node, first_slot=number))
                number += node.num_slots
        order = sorted(nodes, key=lambda node: node.first_slot)
        seen = time.time() if now is None else now
        return replace(self, nodes=tuple(order), next_slot=number, seen=seen, trouble="")

    @property
    def machine(self) -> Machine:
        """What there is to schedule on."""
        if self.trouble:
            return Machine((), (self.trouble,), is_cluster=True)
        used = [node for node in self.nodes if not node.left_out]
        skipped = tuple(
            f"Node {node.host} ({node.address}) is not used: {node.left_out}"
            for node in self.nodes
            if node.left_out
        )
        slots = tuple(slot for node in used for slot in node.slots)
        kind = CUDA if any(node.has_gpus for node in used) else CPU
        leaving = frozenset(s.id for node in self.nodes if node.is_leaving for s in node.slots)
        return Machine(slots, skipped, tuple(used), True, kind, leaving=leaving)

    def save(self, path: Path) -> None:
        write_json(path, {"version": _VERSION, **asdict(self)}, durable=True)


def load_nodes(path: Path) -> NodeTable | None:
    """The table that was saved last, None if there is none."""
    with contextlib.suppress(FileNotFoundError):
        content = json.loads(path.read_bytes())
        if content.pop("version") == _VERSION:
            return _table(content)
    return None


def _table(content: Mapping[str, object]) -> NodeTable:
    values = dict(content)
    listed = values.pop("nodes")
    assert isinstance(listed, list)
    nodes = tuple(Node(**{**node, "pools": tuple(node["pools"])}) for node in listed)
    return NodeTable(**values, nodes=nodes)  # type: ignore[arg-type]  # as `save` wrote it
