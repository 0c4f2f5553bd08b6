"""`det slot`: what runs where, what waits, and why."""

from __future__ import annotations

import click

from determined.cli._commands.absent import absent
from determined.cli._commands.group import Group
from determined.cli._commands.options import utc_option
from determined.cli._commands.platform import platform
from determined.cli._present.tables import Output, output_options, show, show_json, time_text


@click.group(cls=Group, default="list")
def slot() -> None:
    """Show what the slots of this machine, or of the cluster, are used for."""


@slot.verb("list", aliases=["ls"])
@utc_option
@output_options
def list_slots(utc: bool, output: Output) -> None:
    """List the slots and the trials on them, and which trials wait for what."""
    from determined.platform.queries.queue import read_queue
    from determined.platform.supervisor import presence

    with platform() as service:
        has_supervisor = presence.find(service.home) is not None
        queue = read_queue(
            service.home, service.reader if service.has_store else None, has_supervisor
        )
    hosts = {node.id: f"{node.host} ({node.address})" for node in queue.nodes}
    headers = ["Slot ID", "Node", "Device", "Experiment ID", "Trial ID", "Since"]
    rows: list[list[object]] = []
    for place in queue.slots:
        runs = queue.runs.get(place.id, [])
        device, node = place.gpu or "CPU", hosts.get(place.node, "this machine")
        rows += [
            [
                place.id,
                node,
                device,
                queue.experiment_of.get(run.trial_id),
                run.trial_id,
                time_text(run.started or run.created, utc=utc),
            ]
            for run in runs
        ] or [[place.id, node, device, None, None, "free"]]
    if queue.jobs or queue.partitions:
        headers = ["Job ID", "Node", "Partition", "Experiment ID", "Trial ID", "Since"]
        rows = [
            [
                each.job.id if each.job else None,
                each.run.host or None,
                each.job.partition if each.job else None,
                queue.experiment_of.get(each.run.trial_id),
                each.run.trial_id,
                time_text(each.run.started or each.run.created, utc=utc),
            ]
            for each in queue.jobs
            if not each.is_pending
        ]
    waiting = [[item.experiment.id, item.trial.id, item.reason] for item in queue.waiting]
    if output == "json":
        names = ("slot_id", "node", "device", "experiment_id", "trial_id", "since")
        if queue.jobs or queue.partitions:
            names = ("job_id", "node", "partition", "experiment_id", "trial_id", "since")
        waits = ("experiment_id", "trial_id", "reason")
        show_json(
            {
                "slots": [dict(zip(names, row, strict=True)) for row in rows],
                "waiting": [dict(zip(waits, row, strict=True)) for row in waiting],
                "left_out": list(queue.skipped),
            }
        )
        return
    show(headers, rows, output)
    if output == "csv":
        return
    for line in queue.skipped:
        click.echo(line)
    for each in queue.partitions:
        default = ", the default" if each.is_default else ""
        click.echo(
            f"Partition {each.name}{default}: {each.nodes} nodes of up to {each.size}, "
            f"{each.idle} idle, {each.down} down or drained"
        )
    if queue.without_slot:
        trials = ", ".join(str(run.trial_id) for run in queue.without_slot)
        click.echo(f"\nWithout a slot: trial {trials}")
    if waiting:
        click.echo("\nWaiting:")
        show(["Experiment ID", "Trial ID", "Reason"], waiting)


absent(
    slot,
    "Slots cannot be enabled and disabled one by one: DET_SLOTS and CUDA_VISIBLE_DEVICES "
    "determine which ones the supervisor uses when it starts.",
    "enable",
    "disable",
)
