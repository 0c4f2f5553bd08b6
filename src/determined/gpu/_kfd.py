"""AMD GPUs, as the kernel describes them to ROCm: files below /sys/class/kfd.

ROCm reads the same files, in the same order, so numbers here are ROCm's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
_PROCESSES = Path("/sys/class/kfd/kfd/proc")


@dataclass(frozen=True)
class Node:
    """A GPU: the kernel's number for it, and its UUID if it has one."""

    gpu_id: str
    uuid: str


def gpus() -> list[Node]:
    """Return the GPUs that this process may use, in ROCm's order."""
    found = []
    for folder in sorted(_numbered(_NODES), key=lambda folder: int(folder.name)):
        try:
            gpu_id = (folder / "gpu_id").read_text().strip()
            lines = (folder / "properties").read_text().splitlines()
        except OSError:
            continue  # a GPU that this container was not given
        if gpu_id in ("", "0"):
            continue  # a processor
        properties = dict(line.split(maxsplit=1) for line in lines if " " in line)
        unique = int(properties.get("unique_id", 0))
        found.append(Node(gpu_id, f"GPU-{unique:016x}" if unique else f"GPU-{gpu_id}"))
    return found


def pids(node: Node) -> list[int]:
    """Return the processes that hold memory of a GPU."""
    found = []
    for folder in _numbered(_PROCESSES):
        with contextlib.suppress(OSError, ValueError):
            if int((folder / f"vram_{node.gpu_id}").read_text()) > 0:
                found.append(int(folder.name))
    return sorted(found)


def _numbered(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from [path for path in folder.iterdir() if path.name.isdecimal()]
