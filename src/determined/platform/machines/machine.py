"""What runs are scheduled on: this machine, or the cluster configured for the home."""

from __future__ import annotations

from determined.platform.homes.home import Home
from determined.platform.machines.cluster import find_cluster
from determined.platform.machines.nodes import NodeTable, load_nodes
from determined.platform.machines.slots import Machine, count_cores, find_slots, threads_per_process
from determined.platform.machines.slurm import SlurmSettings, SlurmTable, load_table


def find_machine(home: Home) -> Machine:
    """The slots of this machine, or those that the supervisor last saw on the cluster."""
    settings = find_cluster(home)
    if settings is None:
        return find_slots()
    table: NodeTable | SlurmTable | None
    if isinstance(settings, SlurmSettings):
        table = load_table(home.slurm)
    else:
        table = load_nodes(home.cluster)
    if table is None or table.address != settings.address:
        hint = "run `det supervisor start`"
        note = f"The cluster {settings.address} has not been contacted yet: {hint}."
        return Machine((), (note,), is_cluster=True)
    return table.machine


def threads_on(machine: Machine, trials_per_slot: int) -> int:
    """How many threads a process of an experiment may use, on the node with the fewest."""
    if not machine.is_cluster:
        return threads_per_process(count_cores(), len(machine.slots), trials_per_slot)
    counts = [
        threads_per_process(node.cores, node.num_slots, trials_per_slot)
        for node in machine.nodes
        if node.num_slots
    ]
    return min(counts, default=1)
