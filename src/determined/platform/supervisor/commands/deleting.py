"""The commands that delete: experiments, checkpoints or parts of them, what a policy does not keep.

They only mark what to delete and refuse what must stay; `background/` deletes the files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from determined.errors import RefusedError
from determined.platform.rules.gc_policy import has_policy, no_policy, with_policy
from determined.platform.rules.states import State
from determined.platform.supervisor.decisions import Decisions
from determined.storage import remaining
from determined.store import Experiment, Retention, Transaction

_DELETABLE = (State.COMPLETED, State.CANCELED, State.ERROR, State.DELETE_FAILED, State.DELETING)


def delete_experiments(
    decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Delete experiments with all that belongs to them: all of those named, or none."""
    records = [transaction.experiment(number) for number in arguments["experiment_ids"]]
    for record in records:
        _check(transaction, record)
    for record in records:
        transaction.deletions.begin_all(record.id)
        changes = {"state": State.DELETING.value, "reason": "", "gc_is_due": False}
        transaction.update_experiment(record.id, ended=record.ended, **changes)
    return {}


def _check(transaction: Transaction, record: Experiment) -> None:
    if State(record.state) not in _DELETABLE:
        raise RefusedError(
            f"experiment {record.id} is {record.state}: only an experiment that has ended can be "
            f"deleted. `det experiment kill {record.id}` ends it."
        )
    uuids = transaction.deletions.uuids_of(record.id)
    for uuid, reason in transaction.deletions.in_use(uuids, outside=record.id).items():
        raise RefusedError(
            f"experiment {record.id} cannot be deleted: its checkpoint {uuid} must stay, {reason}."
        )


def delete_checkpoints(
    decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Delete checkpoints, or the files in them that patterns match: of all those named, or none.

    An empty list of patterns deletes nothing: the records are updated to the files that exist.
    """
    globs, found = arguments["globs"], []
    for uuid in arguments["uuids"]:
        checkpoint = transaction.checkpoint(uuid)
        if checkpoint is None:
            raise RefusedError(f"There is no checkpoint {uuid}.")
        found.append(checkpoint)
    in_use = transaction.deletions.in_use(c.uuid for c in found) if globs else {}
    for uuid, reason in in_use.items():
        raise RefusedError(f"checkpoint {uuid} cannot be deleted: {reason}.")
    for checkpoint in found:
        left = remaining(checkpoint.resources, globs)
        state = checkpoint.state
        if globs and not left:
            state = "DELETED"
        elif left != checkpoint.resources and state != "DELETED":
            state = "PARTIALLY_DELETED"
        transaction.deletions.begin(checkpoint.uuid, globs, state)
    return {}


def set_gc_policy(
    decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Change how many checkpoints an experiment keeps, and collect the others now."""
    record = _managed(transaction, arguments["experiment_id"])
    config = with_policy(record.config, Retention(**arguments["policy"]))
    transaction.update_experiment(record.id, config=config)
    decisions.refresh(record.id)
    decisions.changes.collect_garbage_of([record.id])
    return {}


def collect(
    decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Delete now what the policies of experiments do not keep."""
    numbers: Iterable[int] = arguments["experiment_ids"]
    decisions.changes.collect_garbage_of([_managed(transaction, number).id for number in numbers])
    return {}


def _managed(transaction: Transaction, experiment_id: int) -> Experiment:
    record = transaction.experiment(experiment_id)
    if record.state == State.DELETING.value:
        raise RefusedError(f"experiment {record.id} is being deleted.")
    if not has_policy(record):
        raise RefusedError(no_policy(record))
    return record
