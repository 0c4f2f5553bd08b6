"""Where a run of a cluster runs: `placement.json` of its folder, written before its start.

A run on this machine has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from determined._os.json_file import write_json
from determined.platform.machines.slots import Machine
from determined.platform.runs.folder import RunFolder

_FILE = "placement.json"
_COMPARED = ("determined-pytorch", "torch")
_VERSION = 1


class Part(NamedTuple):
    """A run's slots on one node; the first part is the chief's."""

    node: str
    host: str
    address: str
    slots: tuple[int, ...]


class Placement(NamedTuple):
    """The parts of a run, and what all of them need.

    `share` is what it takes of each slot. `code` is the digest of its snapshot below `snapshots`.
    `expects` holds the versions of packages that the experiment was created with, `storage` is its
    section `checkpoint_storage`.
    """

    parts: tuple[Part, ...]
    has_gpus: bool = False
    share: float = 1.0
    code: str | None = None
    snapshots: str = ""
    interpreter: str = ""
    expects: Mapping[str, str] = {}
    storage: Mapping[str, Any] = {}

    def save(self, run: RunFolder) -> None:
        write_json(run.path / _FILE, {"version": _VERSION, **self._asdict()})


def place(slots: Sequence[int], machine: Machine, number: int) -> tuple[Part, ...]:
    """Group the slots of a run by node, most slots first; without slots, nodes take turns."""
    if not machine.nodes:
        return ()
    if not slots:
        node = machine.nodes[number % len(machine.nodes)]
        return (Part(node.id, node.host, node.address, ()),)
    found = []
    for node in machine.nodes:
        own = tuple(slot.id for slot in node.slots if slot.id in slots)
        if own:
            found.append(Part(node.id, node.host, node.address, own))
    return tuple(sorted(found, key=lambda part: (-len(part.slots), part.slots)))


def expected_versions(packages: Iterable[str]) -> dict[str, str]:
    """Of a list of `name==version`, those that nodes should have, too."""
    versions = dict(package.split("==", 1) for package in packages)
    return {name: versions[name] for name in _COMPARED if name in versions}


def load_placement(run: RunFolder) -> Placement | None:
    """Where a run was placed; None for one of this machine."""
    path: Path = run.path / _FILE
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    if content.pop("version") != _VERSION:
        raise ValueError(f"{path} was written by another version of determined-pytorch.")
    parts = tuple(
        Part(node, host, address, tuple(slots))
        for node, host, address, slots in content.pop("parts")
    )
    return Placement(parts, **content)
