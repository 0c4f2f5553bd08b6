"""What a supervisor does in a copy of a home: nothing is started, and what is outside stays."""

from __future__ import annotations

from typing import Any

from determined.errors import RefusedError
from determined.platform.supervisor.decisions import Decisions
from determined.store import Command, Transaction, is_storage_inside

_STARTING = ("create", "continue", "activate", "begin_unmanaged", "set_gc_policy", "collect")
_WHY = "this home is a copy, in which nothing runs"


def hold_copies(decisions: Decisions) -> None:
    """Pause what ran when the copy was made: it is the home's work."""
    for live in decisions.active():
        decisions.changes.hold(live, _WHY)


def refuse_in_copy(command: Command, decisions: Decisions, transaction: Transaction) -> None:
    """Refuse what would run something, or delete files outside."""
    if not decisions.is_copy:
        return
    if command.verb in _STARTING:
        raise RefusedError(
            f"{decisions.home.path} is a copy of a home, in which nothing runs and no policy "
            "applies. `det store adopt` makes it a home of its own."
        )
    if command.verb == "delete_checkpoints":
        for uuid in command.arguments["uuids"]:
            _refuse_outside(uuid, decisions, transaction)


def _refuse_outside(uuid: str, decisions: Decisions, transaction: Transaction) -> None:
    checkpoint = transaction.checkpoint(uuid)
    if checkpoint is None or checkpoint.experiment_id is None:
        return
    owner = transaction.experiment(checkpoint.experiment_id)
    section = checkpoint.storage or owner.checkpoint_storage
    if not is_storage_inside(decisions.home.path, section):
        raise RefusedError(
            f"checkpoint {uuid} cannot be deleted: {decisions.home.path} is a copy of a home, and "
            "its files are outside it."
        )


def adopt(
    decisions: Decisions, transaction: Transaction, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Make the copy a home of its own; another supervisor goes on with it."""
    if not decisions.is_copy:
        raise RefusedError(f"{decisions.home.path} is a home of its own already.")
    for record in transaction.with_calls():  # made, or to be made, by the home itself
        environment = {k: v for k, v in record.environment.items() if k != "calls"}
        transaction.update_experiment(record.id, environment=environment)
    foreign = transaction.adopt_home(decisions.home.path)
    decisions.hand_over()
    return {"foreign": foreign}
