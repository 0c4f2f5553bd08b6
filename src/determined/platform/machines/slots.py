"""The slots of this machine or of a cluster, and what a run needs to use some of them.

A slot is a GPU where there are GPUs, else a share of the CPU. GPUs that other
processes compute on are left out and named. No framework is imported.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from determined._os import processes
from determined.gpu import get_gpu_processes, get_gpu_uuids

if TYPE_CHECKING:
    from determined.platform.machines.nodes import Node

SLOTS_VARIABLE = "DET_SLOTS"
_NVIDIA = ("GPU-", "MIG-")
# Below the range from which the kernel takes ports for outgoing connections.
_PORTS = range(20_000, 32_768)


@dataclass(frozen=True)
class Slot:
    """One slot; `gpu` is the id of its GPU, None for a share of the CPU.

    On a cluster, `node` is where it is and `pools` are the resource pools it belongs to.
    """

    id: int
    gpu: str | None = None
    node: str = ""
    pools: tuple[str, ...] = ()


@dataclass(frozen=True)
class Machine:
    """What there is to schedule on, and a line for each GPU or node that is left out."""

    slots: tuple[Slot, ...]
    skipped: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    is_cluster: bool = False

    @property
    def has_gpus(self) -> bool:
        return bool(self.skipped) or any(slot.gpu for slot in self.slots)


def find_slots() -> Machine:
    """The slots of this machine: its GPUs, else DET_SLOTS CPU slots, else one per core."""
    gpus = [uuid for uuid in get_gpu_uuids() if uuid.startswith(_NVIDIA)]
    if not gpus:
        return Machine(tuple(Slot(number) for number in range(_cpu_slots())))
    users = get_gpu_processes()
    slots, skipped = [], []
    for number, uuid in enumerate(gpus):
        foreign = [pid for pid in users.get(uuid, ()) if not _is_ours(pid)]
        if foreign:
            pids = ", ".join(map(str, foreign))
            skipped.append(f"GPU {number} ({uuid}) is not used: process {pids} is running on it.")
        else:
            slots.append(Slot(number, uuid))
    return Machine(tuple(slots), tuple(skipped))


def device_variables(slots: Sequence[Slot], machine: Machine) -> dict[str, str]:
    """Return the variables that limit a run to the GPUs of its slots; to none if it has none."""
    if not machine.has_gpus:
        return {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(slot.gpu for slot in slots if slot.gpu)}


def threads_per_process(cores: int, num_slots: int, trials_per_slot: int = 1) -> int:
    """Return how many threads each process of an experiment may use when all slots are busy.

    Results differ in their last bits between numbers of threads: decide once per experiment.
    """
    return max(1, cores // (max(1, num_slots) * trials_per_slot))


def port_variables(ports: Sequence[int]) -> dict[str, str]:
    """Return the ports of a run under the names that launchers look for."""
    names = ("C10D_PORT", "INTER_TRAIN_PROCESS_COMM_PORT_1", "INTER_TRAIN_PROCESS_COMM_PORT_2")
    return dict(zip(names, map(str, ports), strict=True))


def free_ports(count: int = 3, taken: Collection[int] = ()) -> list[int]:
    """Return ports that nothing listens on; `taken` are those assigned to other live runs."""
    found: list[int] = []
    candidates = random.Random(os.urandom(8)).sample(_PORTS, len(_PORTS))
    for port in candidates:
        if len(found) == count:
            return found
        if port not in taken and _is_free(port):
            found.append(port)
    raise OSError(
        f"There are fewer than {count} free ports from {_PORTS.start} to {_PORTS.stop - 1}."
    )


def count_cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_slots() -> int:
    text = os.environ.get(SLOTS_VARIABLE)
    if text is None:
        return count_cores()
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"{SLOTS_VARIABLE}: expected an integer >= 1, got {text!r}.")
    return int(text)


def _is_ours(pid: int) -> bool:
    return processes.has_variable(pid, "DET_ALLOCATION_ID")


def _is_free(port: int) -> bool:
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
