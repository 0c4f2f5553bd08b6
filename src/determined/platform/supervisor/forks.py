"""Forks in the supervisor: created with what they keep of their parent, trained part by part."""

from __future__ import annotations

from typing import Any

from determined.errors import RefusedError
from determined.platform.rules.forking import ForkedRun, Part, check_place, part_of, told
from determined.platform.search import events as search
from determined.store import Checkpoint, Experiment, Fork, Run, Transaction, Trial


def check_fork(transaction: Transaction, asked: dict[str, Any]) -> dict[str, Any]:
    """Return what a fork is created with, found again in this transaction; refuse what cannot be.

    From then on nobody deletes the checkpoint that it starts from.
    """
    parent = transaction.trial(asked["parent_trial_id"])
    experiment, at = transaction.experiment(parent.experiment_id), asked["at"]
    if experiment.state.startswith("DELET"):
        raise RefusedError(f"trial {parent.id} is deleted: it cannot be forked.")
    latest = transaction.latest_checkpoint(parent.id)
    trained = max(parent.total_batches, 0 if latest is None else latest.steps_completed)
    check_place(parent, at, trained, transaction.forks.find(parent.id))
    base = transaction.forks.base(parent.id, at)
    if (None if base is None else base.uuid) != asked["checkpoint_uuid"]:
        raise RefusedError(
            "the checkpoint that the fork was to start from is gone, or there is a newer one: try "
            "again."
        )
    return asked | {"trial_seed": parent.seed if asked["seed"] is None else asked["seed"]}


def add_fork(transaction: Transaction, trial: Trial, asked: dict[str, Any]) -> None:
    """Record that a new trial is a fork."""
    transaction.forks.add(
        Fork(
            trial.id,
            asked["parent_trial_id"],
            asked["at"],
            asked["checkpoint_uuid"],
            asked["changed"],
            asked["seed"],
        )
    )


def add_fork_of_search(
    transaction: Transaction, trial: Trial, parent: Trial, action: search.Fork
) -> None:
    """Record that a new trial is a fork of another trial of its search."""
    base = transaction.forks.base(parent.id, action.at)
    uuid = None if base is None else base.uuid
    transaction.forks.add(Fork(trial.id, parent.id, action.at, uuid, action.changed, None))


def start_of(transaction: Transaction, trial: Trial) -> tuple[int, str | None]:
    """Return at which step, and from which checkpoint, the next run of a trial starts."""
    own = transaction.latest_checkpoint(trial.id)
    if own is not None:
        return own.steps_completed, own.uuid
    fork = transaction.forks.find(trial.id)
    if fork is None:
        return 0, trial.warm_start_checkpoint
    if fork.checkpoint_uuid is not None:
        base = transaction.checkpoint(fork.checkpoint_uuid)
        if base is not None and base.state == "DELETED":
            # Once a fork of a search has checkpoints of its own, it does not keep this one.
            base = transaction.forks.base(fork.parent_trial_id, fork.at)
            return (0, None) if base is None else (base.steps_completed, base.uuid)
        return (0 if base is None else base.steps_completed), fork.checkpoint_uuid
    if fork.changed and not fork.is_checked:
        # Any state of the parent tells whether the changes are possible.
        other = _newest(transaction, fork)
        return 0, None if other is None else other.uuid
    return 0, None


def _newest(transaction: Transaction, fork: Fork) -> Checkpoint | None:
    for ancestor in reversed(transaction.forks.lineage(fork.trial_id)):
        found = transaction.latest_checkpoint(ancestor.parent_trial_id)
        if found is not None:
            return found
    return None


def forked_run(transaction: Transaction, run: Run) -> ForkedRun | None:
    """Return what a run of a fork trains and with what; None if its trial is no fork."""
    lineage = transaction.forks.lineage(run.trial_id)
    if not lineage:
        return None
    part = part_of(lineage, run.steps_completed, run.from_checkpoint)
    trial = transaction.trial(part.trial_id)
    config = transaction.experiment(trial.experiment_id).config
    root = transaction.trial(lineage[0].parent_trial_id)
    by_hand = transaction.experiment(root.experiment_id).unmanaged
    own = transaction.experiment(transaction.trial(run.trial_id).experiment_id)
    return ForkedRun(
        part=part,
        hparams=trial.hparams,
        seed=trial.seed,
        config=_config(config, own),
        told=told(part, trial.hparams if by_hand else None),
    )


def _config(config: dict[str, Any], own: Experiment) -> dict[str, Any]:
    """The configuration of an ancestor; where checkpoints and reports go stays the fork's own."""
    kept = ("checkpoint_storage", "name", "workspace", "project", "resources")
    return {**config, **{key: own.config[key] for key in kept}}


def after_part(transaction: Transaction, trial_id: int, part: Part, *, is_done: bool) -> str:
    """Record what a run of a fork that stopped by itself has brought; return that in words."""
    fork = transaction.forks.find(trial_id)
    if fork is None or not is_done:
        return ""
    if part.is_check:
        transaction.forks.mark_checked(trial_id)
        return "its changes are possible"
    if part.ends_at is None:
        return ""
    latest = transaction.latest_checkpoint(trial_id)
    if latest is None or latest.steps_completed < part.ends_at:
        return ""
    if latest.steps_completed >= fork.at:
        transaction.deletions.begin_before(trial_id, fork.at)
    return f"trained up to batch {part.ends_at} as trial {part.trial_id} did"
