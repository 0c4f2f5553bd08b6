"""The commands that clients may send: each a function of the decisions and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from determined.config import stored
from determined.errors import RefusedError, StoreError
from determined.platform.rules.states import State
from determined.platform.supervisor.commands.continuing import continue_experiment
from determined.platform.supervisor.commands.copies import adopt, refuse_in_copy
from determined.platform.supervisor.commands.deleting import (
    collect,
    delete_checkpoints,
    delete_experiments,
    set_gc_policy,
)
from determined.platform.supervisor.commands.detached import begin_unmanaged, refuse_if_unmanaged
from determined.platform.supervisor.commands.projects import move, project_id
from determined.platform.supervisor.commands.registry import REGISTRY_VERBS
from determined.platform.supervisor.decisions import Decisions
from determined.platform.supervisor.fault_isolation import FaultyCommand, isolating
from determined.platform.supervisor.forks import check_fork
from determined.store import Checkpoint, Command, NewExperiment, Transaction, columns_of

if TYPE_CHECKING:
    from determined.config.model.searcher import AnySearcher

_RETENTION = {"save_experiment_best", "save_trial_best", "save_trial_latest", "gc"}

Answer = dict[str, Any]
_Verb = Callable[[Decisions, Transaction, dict[str, Any]], Answer]


def carry_out(command: Command, decisions: Decisions, transaction: Transaction) -> None:
    """Carry out a command and answer it, both in this transaction."""
    verb = _VERBS.get(command.verb)
    try:
        if verb is None:
            raise RefusedError(
                f"This supervisor does not know the command {command.verb!r}: its version is "
                "older. `det supervisor stop` stops it; the next command starts a new one."
            )
        with isolating(FaultyCommand(command.uuid)):
            refuse_if_unmanaged(command, transaction)
            refuse_in_copy(command, decisions, transaction)
            answer = verb(decisions, transaction, command.arguments)
    except (RefusedError, StoreError) as error:
        transaction.answer(command.uuid, False, {"error": str(error)})
    else:
        transaction.answer(command.uuid, True, answer)


def _create(decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]) -> Answer:
    config, asked = arguments["config"], arguments.get("fork")
    fork = {} if asked is None else {"fork": check_fork(transaction, asked)}
    configuration = stored(config)
    source = _warm_start(transaction, configuration.searcher)
    record = decisions.create(
        NewExperiment(
            config=config,
            owner=arguments["owner"],
            state=(State.PAUSED if arguments.get("paused") else State.ACTIVE).value,
            original_config=arguments.get("original_config", ""),
            project_id=project_id(transaction, configuration, arguments["owner"]),
            parent_id=arguments.get("parent_id"),
            snapshot_id=arguments.get("snapshot"),
            environment={
                "creation": arguments["creation"],
                "warm_start": None if source is None else source.uuid,
                "warm_start_storage": _storage_elsewhere(transaction, source, config),
                **fork,
            },
            **columns_of(configuration),
        )
    )
    return {"experiment_id": record.id}


def _warm_start(transaction: Transaction, searcher: AnySearcher) -> Checkpoint | None:
    """The checkpoint that all trials start from, if the configuration names one."""
    uuid, trial_id = searcher.source_checkpoint_uuid, searcher.source_trial_id
    if trial_id is not None:
        latest = transaction.latest_checkpoint(transaction.trial(trial_id).id)
        if latest is None:
            raise RefusedError(f"searcher.source_trial_id: trial {trial_id} has no checkpoint.")
        return latest
    if uuid is None:
        return None
    found = transaction.checkpoint(uuid)
    if found is None:
        raise RefusedError(f"searcher.source_checkpoint_uuid: there is no checkpoint {uuid}.")
    if found.state != "COMPLETED":
        raise RefusedError(f"searcher.source_checkpoint_uuid: {uuid} is {found.state}.")
    return found


def _storage_elsewhere(
    transaction: Transaction, source: Checkpoint | None, config: dict[str, Any]
) -> dict[str, Any] | None:
    """The storage of the checkpoint that trials start from, if it is not their own."""
    if source is None:
        return None
    storage = source.storage
    if not storage and source.experiment_id is not None:
        storage = transaction.experiment(source.experiment_id).checkpoint_storage
    own = config["checkpoint_storage"]
    is_same = all(storage.get(key) == own.get(key) for key in {*storage, *own} - _RETENTION)
    return None if is_same or not storage else storage


def _on_experiment(verb: Callable[[Decisions, int], None]) -> _Verb:
    def act(decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]) -> Answer:
        experiment_id = arguments["experiment_id"]
        verb(decisions, experiment_id)
        return {"state": transaction.experiment(experiment_id).state}

    return act


def _kill_trial(
    decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]
) -> Answer:
    decisions.kill_trial(arguments["trial_id"])
    return {"state": transaction.trial(arguments["trial_id"]).state}


def _archive(decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]) -> Answer:
    record = transaction.experiment(arguments["experiment_id"])
    archived = arguments["archived"]
    if archived and not State(record.state).is_terminal:
        raise RefusedError(
            f"experiment {record.id} is {record.state}: only an experiment that has ended can be "
            "archived."
        )
    if record.archived == archived:
        raise RefusedError(
            f"experiment {record.id} is {'' if archived else 'not '}archived already."
        )
    transaction.update_experiment(record.id, archived=archived)
    return {}


def _set(decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]) -> Answer:
    """Change the descriptive fields of an experiment, or how it is scheduled."""
    allowed = {"name", "description", "notes", "labels", "priority", "max_slots", "weight"}
    changes = arguments["changes"]
    if unknown := set(changes) - allowed:
        raise RefusedError(f"These cannot be set: {', '.join(sorted(unknown))}.")
    transaction.update_experiment(arguments["experiment_id"], **changes)
    decisions.refresh(arguments["experiment_id"])
    return {}


def _label(decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]) -> Answer:
    """Add or remove one label; concurrent changes of other labels are not lost."""
    record, label = transaction.experiment(arguments["experiment_id"]), arguments["label"]
    if arguments["remove"]:
        labels = [other for other in record.labels if other != label]
    else:
        labels = list(dict.fromkeys([*record.labels, label]))
    transaction.update_experiment(record.id, labels=labels)
    decisions.refresh(record.id)
    return {"labels": labels}


_VERBS: dict[str, _Verb] = {
    "create": _create,
    "continue": continue_experiment,
    "pause": _on_experiment(Decisions.pause),
    "activate": _on_experiment(Decisions.activate),
    "cancel": _on_experiment(Decisions.cancel),
    "kill": _on_experiment(Decisions.kill),
    "kill_trial": _kill_trial,
    "archive": _archive,
    "set": _set,
    **REGISTRY_VERBS,
    "delete": delete_experiments,
    "delete_checkpoints": delete_checkpoints,
    "set_gc_policy": set_gc_policy,
    "collect": collect,
    "move": move,
    "begin_unmanaged": begin_unmanaged,
    "label": _label,
    "adopt": adopt,
}
