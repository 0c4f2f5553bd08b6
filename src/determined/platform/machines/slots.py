"""The slots of this machine or of a cluster, and what a run needs to use some of them.

A slot is a GPU or a MIG device where there are some, else a share of the CPU. GPUs that other
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
from determined.gpu import CUDA, MPS, ROCM, find_gpus

if TYPE_CHECKING:
    from determined.platform.machines.nodes import Node

SLOTS_VARIABLE = "DET_SLOTS"
CPU = "cpu"
_MIG = "MIG-"
# nvidia-cuda-mps-server computes for others, and the driver lists them, too: they decide.
_MPS_SERVER = "nvidia-cuda-mps"
# Below the range from which the kernel takes ports for outgoing connections.
_PORTS = range(20_000, 32_768)


@dataclass(frozen=True)
class Slot:
    """One slot; `gpu` is the UUID of its GPU, None for a share of the CPU.

    On a cluster, `node` is where it is and `pools` are the resource pools it belongs to.
    `hip` is what HIP_VISIBLE_DEVICES calls a GPU of AMD.
    """

    id: int
    gpu: str | None = None
    node: str = ""
    pools: tuple[str, ...] = ()
    hip: str = ""

    @property
    def is_mig(self) -> bool:
        return self.gpu is not None and self.gpu.startswith(_MIG)


@dataclass(frozen=True)
class Machine:
    """What there is to schedule on, and a line for each GPU or node that is left out.

    `kind` says what the slots are: cpu, cuda, rocm or mps. With `is_queued` each slot stands for
    one job of a batch system, however many slots its trial needs. What runs on slots that are
    `leaving` has to go on elsewhere.
    """

    slots: tuple[Slot, ...]
    skipped: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    is_cluster: bool = False
    kind: str = CPU
    is_queued: bool = False
    leaving: frozenset[int] = frozenset()

    @property
    def has_gpus(self) -> bool:
        return self.kind != CPU

    def kind_of(self, slots: Sequence[Slot]) -> str:
        """What a run on these slots computes on."""
        return self.kind if any(slot.gpu for slot in slots) else CPU


def find_slots() -> Machine:
    """The slots of this machine: its GPUs, else DET_SLOTS CPU slots, else one per core.

    The GPU of an Apple computer is one slot, or as many as DET_SLOTS says: torch cannot part it.
    """
    gpus = find_gpus()
    if not gpus:
        return Machine(tuple(Slot(number) for number in range(_wanted_slots() or count_cores())))
    kind = gpus[0].kind
    if kind == MPS:
        shares = range(_wanted_slots() or 1)
        return Machine(tuple(Slot(number, gpus[0].uuid) for number in shares), kind=kind)
    slots, skipped = [], []
    for number, gpu in enumerate(gpus):
        foreign = [pid for pid in gpu.pids if not _is_ours(pid)]
        if foreign:
            pids = ", ".join(map(str, foreign))
            skipped.append(
                f"GPU {number} ({gpu.uuid}) is not used: process {pids} is running on it."
            )
        else:
            slots.append(Slot(number, gpu.uuid, hip=gpu.name if kind == ROCM else ""))
    return Machine(tuple(slots), tuple(skipped), kind=kind)


def device_variables(slots: Sequence[Slot], machine: Machine) -> dict[str, str]:
    """Return the variables that limit a run to the GPUs of its slots; to none if it has none."""
    if machine.kind == CUDA:
        return {"CUDA_VISIBLE_DEVICES": ",".join(slot.gpu for slot in slots if slot.gpu)}
    if machine.kind == ROCM:
        # Numbers count what ROCR_VISIBLE_DEVICES leaves: a run gets the list they were found with.
        # HIP takes an empty list for none, and reads CUDA_VISIBLE_DEVICES then.
        outer = {n: os.environ[n] for n in ("ROCR_VISIBLE_DEVICES",) if n in os.environ}
        return outer | {"HIP_VISIBLE_DEVICES": ",".join(slot.hip for slot in slots) or "-1"}
    return {}


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


def _wanted_slots() -> int | None:
    text = os.environ.get(SLOTS_VARIABLE)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"{SLOTS_VARIABLE}: expected an integer >= 1, got {text!r}.")
    return int(text)


def _is_ours(pid: int) -> bool:
    if processes.has_variable(pid, "DET_ALLOCATION_ID"):
        return True
    return processes.name_of(pid) == _MPS_SERVER


def _is_free(port: int) -> bool:
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
