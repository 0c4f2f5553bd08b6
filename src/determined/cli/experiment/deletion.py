"""Commands that delete: experiments, their event files, and checkpoints that a policy drops."""

from __future__ import annotations

import click

from determined.cli._commands.absent import absent
from determined.cli._commands.errors import INTERRUPTED, OK
from determined.cli._commands.options import (
    COUNT,
    EXPERIMENT_ID,
    EXPERIMENT_IDS,
    confirm,
    yes_option,
)
from determined.cli._commands.platform import platform
from determined.cli._present.records import show_checkpoints
from determined.cli._present.results import json_option, report
from determined.cli._present.tables import counted, size_text
from determined.cli.experiment.noun import experiment
from determined.cli.experiment.settings import setting


@experiment.verb("delete")
@click.argument("experiment_ids", type=EXPERIMENT_IDS, metavar="ID[,ID...]")
@yes_option
@json_option
def delete(experiment_ids: list[int], yes: bool) -> int:
    """Delete experiments that have ended, with their metrics, logs and checkpoints.

    Refused if a checkpoint is a version of a model. Ctrl-C stops waiting, not the deletion.
    """
    numbers = ", ".join(map(str, experiment_ids))
    what = f"experiment {numbers}" if len(experiment_ids) == 1 else f"experiments {numbers}"
    with platform(wake=False) as service:
        found = [service.experiment(number) for number in experiment_ids]
        count = sum(record.checkpoint_count for record in found)
        size = size_text(sum(record.checkpoint_size for record in found))
        files = f"{counted(count, 'checkpoint')} ({size})"
        confirm(f"Delete {what} with all metrics, logs and {files}? That cannot be undone.", yes)
        try:
            service.delete_experiments(experiment_ids)
        except KeyboardInterrupt:
            click.echo(f"\nDeletion of {what} is in progress")
            return INTERRUPTED
        report(f"Deleted {what}", deleted=experiment_ids)
        return OK


@experiment.verb("delete-tb-files")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@json_option
def delete_tb_files(experiment_id: int) -> None:
    """Delete the stored TensorBoard files of an experiment; its metrics stay."""
    with platform(wake=False) as service:
        freed = service.delete_tensorboard_files(experiment_id)
        report(
            f"Deleted the TensorBoard files of experiment {experiment_id} ({size_text(freed)})",
            experiment_id=experiment_id,
            freed_bytes=freed,
        )


@setting.verb("gc-policy")
@click.argument("experiment_id", type=EXPERIMENT_ID, metavar="ID")
@click.option(
    "--save-experiment-best",
    type=COUNT,
    required=True,
    metavar="N",
    help="Keep the N best of the experiment.",
)
@click.option(
    "--save-trial-best", type=COUNT, required=True, metavar="N", help="Keep the N best per trial."
)
@click.option(
    "--save-trial-latest",
    type=COUNT,
    required=True,
    metavar="N",
    help="Keep the N latest per trial.",
)
@yes_option
def set_gc_policy(
    experiment_id: int,
    save_experiment_best: int,
    save_trial_best: int,
    save_trial_latest: int,
    yes: bool,
) -> None:
    """Set which checkpoints an experiment keeps, and delete the others now.

    First shows what it will delete. Versions of models, checkpoints that other trials start from,
    and those from which an unfinished trial would continue are never deleted.
    """
    from determined.store import Retention

    policy = Retention(save_experiment_best, save_trial_best, save_trial_latest)
    with platform(wake=False) as service:
        garbage = service.garbage(experiment_id, policy)
        if garbage:
            show_checkpoints(garbage)
            size = size_text(sum(item.checkpoint.size for item in garbage))
            confirm(f"Delete {counted(len(garbage), 'checkpoint')} ({size})?", yes)
        else:
            click.echo("No checkpoint will be deleted.")
        service.set_gc_policy(experiment_id, policy)
        click.echo(f"Set the policy of experiment {experiment_id}")


absent(
    setting,
    "Logs are kept as long as their experiment: `det experiment delete` removes them.",
    "log-retention",
)
