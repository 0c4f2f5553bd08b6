"""Whether runs go to a cluster, and to which one: `DET_CLUSTER`, else `cluster:` in platform.yaml.

For Slurm, see `slurm.py`; for Ray:

    cluster:
      type: ray
      address: auto         # or host:port, or ray://host:port
      slot_type: gpu        # or cpu; without it GPUs where there are any
      insecure: false       # true: accept a cluster without token authentication

Nothing of Ray is imported here: clients use this module, too.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from determined._contracts.home import SETTINGS_FILE
from determined.errors import DeterminedError
from determined.platform.homes.home import Home
from determined.platform.machines.slurm import SCHEME, SlurmSettings, from_name, from_section

CLUSTER_VARIABLE = "DET_CLUSTER"
INSECURE_VARIABLE = "DET_CLUSTER_INSECURE"
_ADDRESS = re.compile(r"auto|(ray://)?(\[[0-9a-fA-F:]+\]|[^\s/:\[\]]+):[0-9]{1,5}")
_LARGEST_PORT = 65535
_SLOT_TYPES = ("gpu", "cpu")
_KEYS = ("type", "address", "slot_type", "insecure")


@dataclass(frozen=True)
class ClusterSettings:
    """A Ray cluster; without a `slot_type` its slots are GPUs if it has any, else CPUs.

    `way_back` is a sentence on how to use this machine instead.
    """

    address: str
    slot_type: str | None = None
    is_insecure: bool = False
    way_back: str = field(default=f"unset {CLUSTER_VARIABLE}", compare=False)


def find_cluster(home: Home) -> ClusterSettings | SlurmSettings | None:
    """The cluster that runs of a home go to, None for this machine."""
    named = os.environ.get(CLUSTER_VARIABLE)
    may_be_open = os.environ.get(INSECURE_VARIABLE, "") not in ("", "0")
    if named == "":
        return None
    is_slurm = named is not None and named.partition(":")[0] == SCHEME
    if named is not None and not is_slurm and not _is_address(named):
        raise DeterminedError(
            f"{CLUSTER_VARIABLE}: expected auto, host:port or ray://host:port, or slurm, "
            f"got {named!r}."
        )
    written = _written(home.path / SETTINGS_FILE)
    if named is None and written is None:
        return None
    way_back = f"unset {CLUSTER_VARIABLE}"
    if written is not None:
        file = home.path / SETTINGS_FILE
        way_back = f"set {CLUSTER_VARIABLE} to nothing, or remove `cluster:` from {file}"
    if is_slurm or (named is None and isinstance(written, SlurmSettings)):
        known = written if isinstance(written, SlurmSettings) else None
        return replace(from_name(named or SCHEME, known), way_back=way_back)
    settings = written if isinstance(written, ClusterSettings) else ClusterSettings("auto")
    if named is not None:
        settings = replace(settings, address=named)
    is_insecure = settings.is_insecure or may_be_open
    return replace(settings, is_insecure=is_insecure, way_back=way_back)


def _is_address(text: str) -> bool:
    if not _ADDRESS.fullmatch(text):
        return False
    return text == "auto" or 0 < int(text.rpartition(":")[2]) <= _LARGEST_PORT


def _written(path: Path) -> ClusterSettings | SlurmSettings | None:
    """The `cluster` section of a file; an error names file, line and key."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if b"cluster" not in data:
        return None  # most homes have none: do not load a parser for them
    from determined.config.reading.yaml_reader import Document, read

    document: Document = read(data, str(path))
    if document.problems and document.value is None:
        raise DeterminedError(str(document.problems[0]))
    section = document.value.get("cluster") if isinstance(document.value, dict) else None
    if section is None:
        return None

    def refuse(key: str | None, expected: str, got: Any) -> DeterminedError:
        where = ("cluster",) if key is None else ("cluster", key)
        mark = document.marks.get(where)
        line = f":{mark.value.line}" if mark else ""
        return DeterminedError(
            f"{path}{line}: {'.'.join(where)}: expected {expected}, got {got!r}."
        )

    if not isinstance(section, dict):
        raise refuse(None, "keys and values (type, address, slot_type, insecure)", section)
    if section.get("type") == SCHEME:
        return from_section(section, refuse)
    for key in section:
        if key not in _KEYS:
            raise refuse(key, f"one of the keys {', '.join(_KEYS)}", key)
    if section.get("type") != "ray":
        raise refuse("type", "ray or slurm", section.get("type"))
    address = section.get("address", "auto")
    if not isinstance(address, str) or not _is_address(address):
        raise refuse("address", "auto, host:port or ray://host:port", address)
    slot_type = section.get("slot_type")
    if slot_type not in (None, *_SLOT_TYPES):
        raise refuse("slot_type", "gpu or cpu", slot_type)
    insecure = section.get("insecure", False)
    if not isinstance(insecure, bool):
        raise refuse("insecure", "true or false", insecure)
    return ClusterSettings(address, slot_type, insecure)
