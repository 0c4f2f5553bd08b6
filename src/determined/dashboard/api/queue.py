"""What is running where, what is waiting, and why."""

from __future__ import annotations

from typing_extensions import TypedDict

from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.view import View
from determined.platform.queries.queue import read_queue
from determined.platform.rules.scheduler import DEFAULT_PRIORITY
from determined.store import Run

routes = Routes("queue")


class UserJson(TypedDict):
    trial_id: int
    experiment_id: int | None
    name: str


class SlotJson(TypedDict):
    """A slot; several trials may share it."""

    id: int
    kind: str
    name: str
    node: str
    used_by: UserJson | None
    users: list[UserJson]


class RunningJson(TypedDict):
    """A run; `job` is what a batch system calls it, which has no slots here."""

    trial_id: int
    experiment_id: int | None
    name: str
    slots: list[int]
    since: float
    host: str
    job: str


class PartitionJson(TypedDict):
    """A partition of a batch system; `size` is that of its largest node."""

    name: str
    is_default: bool
    nodes: int
    idle: int
    down: int
    size: str


class WaitingJson(TypedDict):
    experiment_id: int
    trial_id: int
    name: str
    slots: int
    priority: int
    why: str


class QueueJson(TypedDict):
    slots: list[SlotJson]
    running: list[RunningJson]
    waiting: list[WaitingJson]
    waiting_total: int
    left_out: list[str]
    partitions: list[PartitionJson]


_MOST_WAITING = 1000


@routes.get("/queue")
def queue(view: View) -> QueueJson:
    """The slots of this machine or the cluster with what runs on them, and what is waiting."""
    view.machine()  # raises a clear error if the slots cannot be read
    found = read_queue(
        view.home, view.reader if view.has_store else None, view.supervisor() is not None
    )
    names: dict[int, str] = {}

    def user(run: Run) -> UserJson:
        owner = found.experiment_of.get(run.trial_id)
        if owner is not None and owner not in names:
            names[owner] = view.experiment(owner).name
        return {
            "trial_id": run.trial_id,
            "experiment_id": owner,
            "name": names.get(owner or 0, ""),
        }

    hosts = {node.id: node.host for node in found.nodes}
    slots: list[SlotJson] = []
    for slot in found.slots:
        users = [user(run) for run in found.runs.get(slot.id, [])]
        kind = "cpu" if slot.gpu is None else "gpu"
        first = users[0] if users else None
        slots.append(
            {
                "id": slot.id,
                "kind": kind,
                "name": slot.gpu or f"CPU {slot.id}",
                "node": hosts.get(slot.node, ""),
                "used_by": first,
                "users": users,
            }
        )
    runs = {
        (run.trial_id, run.run_id): run
        for run in [*(r for rs in found.runs.values() for r in rs), *found.without_slot]
    }
    jobs = {each.run.allocation_id: each.job.id for each in found.jobs if each.job is not None}
    running: list[RunningJson] = [
        {
            **user(run),
            "slots": [] if found.partitions else run.slots,
            "since": run.started or run.created,
            "host": run.host,
            "job": jobs.get(run.allocation_id, ""),
        }
        for run in runs.values()
    ]
    waiting: list[WaitingJson] = [
        {
            "experiment_id": item.experiment.id,
            "trial_id": item.trial.id,
            "name": item.experiment.name,
            "slots": item.experiment.configuration.resources.slots_per_trial,
            "priority": item.experiment.priority or DEFAULT_PRIORITY,
            "why": item.reason,
        }
        for item in found.waiting[:_MOST_WAITING]
    ]
    return {
        "slots": slots,
        "running": running,
        "waiting": waiting,
        "waiting_total": len(found.waiting),
        "left_out": list(found.skipped),
        "partitions": [
            {
                "name": each.name,
                "is_default": each.is_default,
                "nodes": each.nodes,
                "idle": each.idle,
                "down": each.down,
                "size": each.size,
            }
            for each in found.partitions
        ],
    }
