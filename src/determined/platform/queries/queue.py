"""Which trial runs on which slot, which ones wait, and why, according to the store."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from determined.platform.homes.home import Home
from determined.platform.machines.machine import find_machine
from determined.platform.machines.nodes import Node
from determined.platform.machines.slots import Machine, Slot
from determined.platform.machines.slurm import Job, Partition, SlurmTable, load_table, plain_reason
from determined.platform.rules.scheduler import DEFAULT_PRIORITY
from determined.platform.runs.folder import RunFolder
from determined.platform.runs.job_order import load_order
from determined.platform.runs.placement import load_placement
from determined.store import Experiment, Reader, Run, Trial, TrialFilter

_SOON = "about to start"


@dataclass(frozen=True)
class Waiting:
    """A trial that could run but does not."""

    trial: Trial
    experiment: Experiment
    reason: str


@dataclass(frozen=True)
class QueuedJob:
    """A run that was submitted to a batch system; `job` is None until that has listed it."""

    run: Run
    job: Job | None

    @property
    def is_pending(self) -> bool:
        return self.job is None or self.job.state == "PENDING"

    @property
    def words(self) -> str:
        """Its state, or why it waits."""
        return "submitted to Slurm" if self.job is None else plain_reason(self.job)


@dataclass(frozen=True)
class Queue:
    """The slots with the runs on each, and those that wait, next one first."""

    slots: tuple[Slot, ...]
    runs: dict[int, list[Run]]
    without_slot: list[Run]
    waiting: list[Waiting]
    experiment_of: dict[int, int]
    """From trials that run to their experiments."""
    skipped: tuple[str, ...] = ()
    """A line for each GPU, node or run that is left out."""
    nodes: tuple[Node, ...] = ()
    """Of a cluster; none on this machine."""
    jobs: tuple[QueuedJob, ...] = ()
    """The runs of a batch system, which has no slots here."""
    partitions: tuple[Partition, ...] = ()


def read_queue(home: Home, reader: Reader | None, has_supervisor: bool) -> Queue:
    """Read the slots of the machine, or of the cluster as last seen, and the store."""
    machine = find_machine(home)
    if reader is None:
        shown = () if machine.is_queued else machine.slots
        return Queue(shown, {}, [], [], {}, machine.skipped, machine.nodes)
    with reader.snapshot():
        running = reader.unfinished_runs()
        trials = reader.trials(TrialFilter(states=["ACTIVE"])).rows
        experiments = {t.experiment_id: reader.experiment(t.experiment_id) for t in trials}
        owners = {run.trial_id: reader.trial(run.trial_id) for run in running}
    busy = {run.trial_id for run in running}
    table = load_table(home.slurm) if machine.is_queued else None
    jobs = [] if table is None else _jobs(running, table)
    by_slot: dict[int, list[Run]] = {}
    for run in running:
        for slot in run.slots:
            by_slot.setdefault(slot, []).append(run)
    experiment_of = {key: trial.experiment_id for key, trial in owners.items() if trial is not None}
    taken = _taken(running, experiment_of)
    if machine.is_queued:
        for run in running:
            owner = experiments.get(experiment_of.get(run.trial_id, 0))
            if owner is not None:  # each run has one slot here, whatever its trial needs
                each = owner.configuration.resources.slots_per_trial
                taken[owner.id] = taken.get(owner.id, 0) + each - len(run.slots)
    waiting = [
        Waiting(trial, experiment, _why(trial, experiment, by_slot, machine, taken))
        for trial in trials
        if trial.id not in busy
        and (experiment := experiments[trial.experiment_id]) is not None
        and experiment.state == "ACTIVE"
    ]
    if not has_supervisor:
        waiting = [Waiting(w.trial, w.experiment, "no supervisor is running") for w in waiting]
    for job in jobs:
        trial = owners.get(job.run.trial_id)
        experiment = None if trial is None else experiments.get(trial.experiment_id)
        if trial is not None and experiment is not None and job.is_pending:
            waiting.append(Waiting(trial, experiment, job.words))
    if table is not None:
        by_slot = {}
        for number, job in enumerate(job for job in jobs if not job.is_pending):
            by_slot[number] = [job.run]
    without = [run for run in running if not run.slots]
    order = sorted(waiting, key=lambda w: (_priority(w.experiment), w.trial.id))
    notes = (*machine.skipped, *_elsewhere(running, machine))
    return Queue(
        () if machine.is_queued else machine.slots,
        by_slot,
        without,
        order,
        experiment_of,
        notes,
        machine.nodes,
        tuple(jobs),
        () if table is None else table.partitions,
    )


def _jobs(running: list[Run], table: SlurmTable) -> list[QueuedJob]:
    """The runs with their jobs; a run's host is the nodes of its job."""
    listed = {job.allocation_id: job for job in table.jobs}
    found = []
    for run in running:
        job = listed.get(run.allocation_id)
        nodes = "" if job is None else job.nodes
        found.append(QueuedJob(replace(run, host=nodes), job))
    return found


def _elsewhere(running: list[Run], machine: Machine) -> list[str]:
    """A line for each run of a cluster, if this machine is used now."""
    if machine.is_cluster:
        return []
    placed = [(run, load_placement(RunFolder(run.folder))) for run in running]
    jobs = [
        f"Trial {run.trial_id} was submitted to Slurm: what becomes of it is seen once "
        "DET_CLUSTER, or `cluster:` in platform.yaml, names that again."
        for run in running
        if load_order(RunFolder(run.folder)) is not None
    ]
    return jobs + [
        f"Trial {run.trial_id} was started on node {placement.parts[0].host} of a cluster: what "
        "becomes of it is seen once DET_CLUSTER, or `cluster:` in platform.yaml, names that again."
        for run, placement in placed
        if placement is not None
    ]


def _taken(running: list[Run], experiment_of: dict[int, int]) -> dict[int, int]:
    taken: dict[int, int] = {}
    for run in running:
        experiment_id = experiment_of.get(run.trial_id, 0)
        taken[experiment_id] = taken.get(experiment_id, 0) + len(run.slots)
    return taken


def _why(
    trial: Trial,
    experiment: Experiment,
    by_slot: dict[int, list[Run]],
    machine: Machine,
    taken: dict[int, int],
) -> str:
    """The first reason that keeps a trial from running, in words."""
    wanted = experiment.configuration.resources.slots_per_trial
    if trial.is_held:
        return trial.reason or "its search holds it back"
    seconds = trial.not_before - time.time()
    if seconds > 0:
        return f"restarts in {seconds:.0f} s, after a failure"
    if experiment.max_slots is not None:
        used = taken.get(experiment.id, 0)
        if used + wanted > experiment.max_slots:
            return f"its experiment uses {used} of max_slots {experiment.max_slots}"
    if machine.is_queued and machine.skipped:
        return "Slurm cannot be used now"
    if machine.is_queued:
        is_full = len(by_slot) >= len(machine.slots)
        return f"all {len(machine.slots)} of cluster.max_jobs are submitted" if is_full else _SOON
    if machine.is_cluster and not machine.slots:
        return "no node of the cluster can be used"
    pool = experiment.configuration.resources.resource_pool if machine.is_cluster else ""
    slots = [slot for slot in machine.slots if not pool or pool in slot.pools]
    where = f" in resource pool {pool!r}" if pool else ""
    if wanted > len(slots):
        return f"needs {_slots(wanted)}, but there are {len(slots)}{where}"
    per_slot = experiment.configuration.resources.trials_per_slot
    free = sum(len(by_slot.get(slot.id, ())) < per_slot for slot in slots)
    if free < wanted:
        return f"needs {_slots(wanted)}, {free or 'none'} free{where}"
    if wanted > 1 and machine.is_cluster and wanted <= max(n.num_slots for n in machine.nodes):
        return f"needs {_slots(wanted)} on one node"
    return _SOON


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def _priority(experiment: Experiment) -> int:
    return DEFAULT_PRIORITY if experiment.priority is None else experiment.priority
