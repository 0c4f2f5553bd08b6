"""What is checked before an experiment is created: its code, the machine, and room on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined.errors import DeterminedError, RefusedError
from determined.platform.homes.home import Home
from determined.platform.supervisor import presence

if TYPE_CHECKING:  # most commands need none of them, and `det` must start fast
    from determined.config import Problem
    from determined.config.model.experiment import Configuration
    from determined.platform.homes.snapshot import Snapshot
    from determined.platform.machines.slots import Machine


def host_changes(snapshot: Snapshot) -> str:
    """Say which lines of the code's startup hook would change this machine, if any."""
    from determined.platform.rules.host_changes import host_changes as changing_lines
    from determined.platform.runs.keeper._hook import HOOK

    file = snapshot.tree / HOOK
    script = file.read_text("utf-8", "replace") if file.is_file() else ""
    found = [f"line {number} (`{line}`)" for number, line, _ in changing_lines(script)]
    if not found:
        return ""
    return f"{HOOK} would change this machine, not just the experiment: {', '.join(found)}."


def check_cluster(home: Home) -> None:
    """Refuse what the running supervisor would start elsewhere than requested."""
    from determined.platform.machines.cluster import CLUSTER_VARIABLE, find_cluster

    facts, settings = presence.find(home), find_cluster(home)
    wanted = "" if settings is None else settings.address
    if facts is not None and facts.cluster != wanted:
        raise RefusedError(
            f"The running supervisor (process {facts.pid}) starts runs on "
            f"{_name_of(facts.cluster)}, but {CLUSTER_VARIABLE} and platform.yaml now say "
            f"{_name_of(wanted)}. Stop it with `det supervisor stop`; its runs continue, "
            "and the next command starts a new one."
        )


def cluster_notes(home: Home, configuration: Configuration) -> list[Problem]:
    """What is wrong with a configuration on the cluster that the home names, and what to know.

    DeterminedError if the settings of that cluster are wrong themselves.
    """
    from determined.config import Problem
    from determined.platform.machines.cluster import find_cluster
    from determined.platform.machines.slurm import SlurmSettings, SlurmTable, load_table
    from determined.platform.runs.job_order import JobOrder
    from determined.platform.runs.launchers.slurm.submission import check_slots

    settings = find_cluster(home)
    if not isinstance(settings, SlurmSettings):
        return []
    resources, section = configuration.resources, configuration.slurm
    pool, found = resources.resource_pool, []
    table = load_table(home.slurm) or SlurmTable(settings.address)
    if pool and table.partitions and table.partition(pool) is None:
        names = ", ".join(partition.name for partition in table.partitions)
        text = f"Slurm has no partition {pool!r}, only {names}: the default one will be used"
        found.append(Problem(text, ("resources", "resource_pool"), severity="note"))
    order = JobOrder(resources.slots_per_trial, pool, slots_per_node=section.slots_per_node)
    try:
        check_slots(order, settings, table)
    except DeterminedError as error:
        found.append(Problem(str(error), ("resources", "slots_per_trial")))
    return found


def check_script(entrypoint: Any, snapshot: Snapshot, model_dir: Path | None) -> None:
    """Refuse a command whose script is not in the code; a startup hook may make one."""
    from determined.platform.runs.entrypoint import script_of
    from determined.platform.runs.keeper._hook import HOOK

    script = script_of(entrypoint)
    if script is None or (snapshot.tree / script).exists() or (snapshot.tree / HOOK).exists():
        return
    folder = "no folder was given" if model_dir is None else f"{model_dir} has no such file"
    raise RefusedError(
        f"entrypoint: {script} is not in the experiment's code: {folder}, or a .detignore leaves "
        "it out. Give the folder that has it: `det experiment create CONFIG MODEL_DIR`."
    )


def check_slots(configuration: Configuration, machine: Machine) -> None:
    wanted, there = configuration.resources.slots_per_trial, len(machine.slots)
    if wanted > there and not machine.is_cluster:  # which may grow: the queue says what is missing
        kind = "GPUs" if machine.has_gpus else "CPU slots"
        raise RefusedError(
            f"resources.slots_per_trial is {wanted}, but this machine has {there} {kind}. Use "
            f"`--config resources.slots_per_trial={there}`"
            + ("." if machine.has_gpus else f", or DET_SLOTS={wanted} to share the CPU further.")
        )

    if wanted > 1 and any(slot.is_mig for slot in machine.slots):
        raise RefusedError(
            f"resources.slots_per_trial is {wanted}, but slots of this machine are MIG devices, "
            "and CUDA shows a process one of them at most. Use "
            "`--config resources.slots_per_trial=1`, or stop the supervisor and name whole GPUs "
            "in CUDA_VISIBLE_DEVICES."
        )


def _name_of(address: str) -> str:
    return f"the cluster {address}" if address else "this machine"


def interpreter_of(configuration: Configuration) -> str | None:
    environment = configuration.environment
    if environment.python:
        return str(environment.python)
    if environment.virtualenv:
        return str(Path(environment.virtualenv).expanduser() / "bin" / "python")
    return None
