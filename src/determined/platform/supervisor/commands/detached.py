"""The command of detached scripts that request ids, and the commands that do not apply to them."""

from __future__ import annotations

import uuid as uuids
from typing import Any

from determined.config import stored
from determined.errors import RefusedError
from determined.journal import InboxItem
from determined.platform.rules.states import State
from determined.platform.rules.unmanaged import has_no_meaning
from determined.platform.supervisor.commands.projects import project_id
from determined.platform.supervisor.decisions import Decisions
from determined.platform.supervisor.unmanaged.runs import UnmanagedRuns
from determined.store import (
    Command,
    Experiment,
    NewExperiment,
    NewTrial,
    Transaction,
    Trial,
    columns_of,
)

_OF_EXPERIMENTS = {
    "pause": "pause",
    "activate": "activate",
    "cancel": "cancel",
    "kill": "kill",
    "continue": "continue",
}


def refuse_if_unmanaged(command: Command, transaction: Transaction) -> None:
    """Refuse a command that applies only to experiments that the platform runs."""
    if command.verb == "kill_trial":
        trial = transaction.trial(command.arguments["trial_id"])
        if transaction.experiment(trial.experiment_id).unmanaged:
            raise RefusedError(has_no_meaning("kill", f"trial {trial.id}"))
    elif (word := _OF_EXPERIMENTS.get(command.verb)) is not None:
        record = transaction.experiment(command.arguments["experiment_id"])
        if record.unmanaged:
            raise RefusedError(has_no_meaning(word, f"experiment {record.id}"))


def begin_unmanaged(
    decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Give a script its experiment, trial and run: new ones, or those that its own ids name."""
    runs = UnmanagedRuns(decisions.home, transaction)
    experiment = _experiment(transaction, arguments)
    trial = _trial(transaction, experiment, arguments)
    if not runs.free(trial):
        last = transaction.run(trial.id, trial.run_id)
        raise RefusedError(
            f"trial {trial.id} (external_trial_id {trial.external_id!r}) is running: another "
            f"process on {last.host} has it. Wait for its end, or give this one another "
            "external_trial_id."
        )
    latest = transaction.latest_checkpoint(trial.id)
    # Without a checkpoint, only its reports will tell where it continues.
    steps = trial.total_batches if latest is None else latest.steps_completed
    uuid = None if latest is None else latest.uuid
    item = InboxItem(decisions.home.inbox / arguments["item"])
    run = runs.begin(trial, item, steps, from_checkpoint=uuid, host=arguments["host"])
    trial = transaction.trial(trial.id)
    return {
        "experiment_id": experiment.id,
        "trial_id": trial.id,
        "run_id": run.run_id,
        "task_id": trial.task_id,
        "allocation_id": run.allocation_id,
        "seed": trial.seed,
        "hparams": trial.hparams,
        "config": experiment.config,
        "latest_checkpoint": uuid,
        "steps_completed": 0 if latest is None else latest.steps_completed,
        "begins_at": steps,
        "best_validation": transaction.experiment(experiment.id).best_validation,
        "last_validation": trial.latest_validation_steps,
        "metadata": trial.metadata,
    }


def _experiment(transaction: Transaction, arguments: dict[str, Any]) -> Experiment:
    external_id, config = arguments["external_experiment_id"], arguments["config"]
    found = transaction.find_external_experiment(external_id) if external_id else None
    if found is not None:
        if not found.unmanaged or found.state in ("DELETING", "DELETE_FAILED", "DELETED"):
            raise RefusedError(f"experiment {found.id} ({external_id}) is {found.state}.")
        return found
    configuration = stored(config)
    return transaction.create_experiment(
        NewExperiment(
            config=config,
            owner=arguments["owner"],
            project_id=project_id(transaction, configuration, arguments["owner"]),
            **columns_of(configuration),
            environment={"folder": arguments["folder"], "pid": arguments["pid"]},
            unmanaged=True,
            external_id=external_id,
        )
    )


def _trial(transaction: Transaction, experiment: Experiment, arguments: dict[str, Any]) -> Trial:
    external_id = arguments["external_trial_id"]
    found = transaction.find_external_trial(experiment.id, external_id) if external_id else None
    if found is not None:
        return found
    return transaction.create_trial(
        NewTrial(
            experiment.id,
            str(uuids.uuid4()),
            experiment.configuration.reproducibility.experiment_seed,
            arguments["hparams"],
            state=State.ACTIVE.value,
            external_id=external_id,
        )
    )
