"""`det job`: the queue of experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from determined.cli._commands.absent import absent
from determined.cli._commands.group import Group
from determined.cli._commands.options import page_of, paging_options, utc_option, without_effect
from determined.cli._commands.platform import platform
from determined.cli._present.tables import Output, output_options, show, time_text

if TYPE_CHECKING:
    from determined.platform.queries.queue import Queue
    from determined.store import Experiment


@click.group(cls=Group, default="list")
def job() -> None:
    """Show which experiments run and which wait, in order."""


@job.verb("list", aliases=["ls"])
@without_effect("all slots of this machine are one pool", "-p/--resource-pool")
@paging_options(200)
@utc_option
@output_options
def list_jobs(limit: int, offset: int, pages: str, utc: bool, output: Output) -> None:
    """List unfinished experiments in the order of the queue: what runs, what waits, and why.

    `det experiment set priority ID N` moves one to the front, `det slot list` shows each trial.
    """
    from determined.platform.queries.queue import read_queue
    from determined.platform.rules.scheduler import DEFAULT_PRIORITY
    from determined.platform.supervisor import presence
    from determined.store import ExperimentFilter

    with platform() as service:
        found: list[Experiment] = []
        has_supervisor = presence.find(service.home) is not None
        queue = read_queue(
            service.home, service.reader if service.has_store else None, has_supervisor
        )
        if service.has_store:
            states = ["ACTIVE", "PAUSED", "STOPPING_COMPLETED", "STOPPING_CANCELED"]
            states += ["STOPPING_KILLED", "STOPPING_ERROR"]
            found = service.reader.experiments(ExperimentFilter(states=states)).rows
    found.sort(key=lambda e: (e.state == "PAUSED", e.priority or DEFAULT_PRIORITY, e.id))
    headers = ["#", "Experiment ID", "Name", "Owner", "State", "Priority", "Submitted"]
    headers += ["Running", "Waiting", "Slots", "Reason"]
    rows = [
        [
            number,
            e.id,
            e.name,
            e.owner,
            e.state,
            e.priority or DEFAULT_PRIORITY,
            time_text(e.created, utc=utc),
            *_counts(queue, e),
        ]
        for number, e in enumerate(found)
    ]
    shown = page_of(rows, limit, offset, pages)
    if output == "table" and not shown:
        click.echo("Nothing is running or waiting.")
        return
    show(headers, shown, output)


def _counts(queue: Queue, experiment: Experiment) -> list[object]:
    """Trials that run and that wait, the slots in use, and why the first one waits."""
    runs = {
        run.trial_id: run.slots
        for place in (*queue.runs.values(), queue.without_slot)
        for run in place
        if queue.experiment_of.get(run.trial_id) == experiment.id
    }
    waiting = [item for item in queue.waiting if item.experiment.id == experiment.id]
    reason = waiting[0].reason if waiting else ""
    return [len(runs), len(waiting), sum(len(slots) for slots in runs.values()), reason]


absent(
    job,
    "The order follows from priorities: `det experiment set priority ID N` changes it.",
    "update",
    "update-batch",
)
