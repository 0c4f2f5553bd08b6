"""The run of a fit: its name, the lock on it, and what to say of others in the storage."""

from __future__ import annotations

import contextlib
import itertools
import logging
from typing import Any

from determined._checkpoint_layout import RUN
from determined.core._agreement import Ranks
from determined.errors import InvalidCheckpointException, RunInUse
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._identity import Identity, differences, file_name, former_run_id, this_run
from determined.pytorch._plan import FitPlan
from determined.storage import StoredCheckpoint
from determined.storage._manifest import load_json
from determined.storage._run_lock import alone_in_run
from determined.storage._runs import StoredRun, list_runs

logger = logging.getLogger("determined.pytorch")

_MOST_NAMED = 3


def hold_run(
    stack: contextlib.ExitStack,
    context: PyTorchTrialContext,
    trial_class: type,
    plan: FitPlan,
) -> None:
    """Name the run, and keep other processes out of it until `stack` closes; for all ranks."""
    identity = identity_of(context)
    context._run_facts = identity.facts(trial_class)
    wanted = context._run_id or identity.run_id(trial_class)
    # A run that starts from scratch under a generated name can get another one.
    may_rename = context._run_id is None and plan.latest_checkpoint is None

    def hold() -> str:
        checkpoints = context._core.checkpoint
        for number in itertools.count(1):
            run_id = wanted if number == 1 else f"{wanted}-{number}"
            lock = alone_in_run(
                checkpoints.storage_base, checkpoints._storage.location, file_name(run_id)
            )
            try:
                stack.enter_context(lock)
            except RunInUse as e:
                if not may_rename:
                    raise
                logger.warning(f"{e} This one starts from scratch as {wanted}-{number + 1}.")
                continue
            break
        return run_id

    context._run_id = Ranks(context.distributed).on_first(hold)
    logger.info(f"This is run {context._run_id}.")


def identity_of(context: PyTorchTrialContext) -> Identity:
    """Return the identity of the program, with the seed and hyperparameters of the context."""
    return this_run(context._given_seed, context._hparams)


def place_curves(context: PyTorchTrialContext, is_continued: bool) -> None:
    """Continue the run's TensorBoard files in their folder, for all ranks."""
    assert context._run_id is not None, "hold_run() comes first"
    context._core.train._name_tensorboard_run(file_name(context._run_id), is_continued)


# What else the storage has.


def former_checkpoint(context: PyTorchTrialContext, trial_class: type) -> str | None:
    """Return the newest checkpoint that an earlier release saved of this very run, if any.

    Those releases told runs apart by script, class and hyperparameters. It is this run's beyond
    doubt if the seed is the same and there are no arguments; otherwise say how to continue it.
    """

    def find() -> str | None:
        identity, storage = identity_of(context), context._core.checkpoint._storage
        if context._run_id != identity.run_id(trial_class):
            return None  # a name that the user chose
        former = former_run_id(identity, context._hparams, trial_class)
        newest = storage.latest(former)
        if newest is None:
            return None
        seed = _saved_seed(context, newest)
        if not identity.arguments and identity.seed in (None, seed):
            logger.warning(
                f"Continuing checkpoint {newest.storage_id} from an earlier release, which "
                f"called this run {former}; it is now called {context._run_id}."
            )
            return newest.storage_id
        logger.warning(
            f"{storage.location} has checkpoints that an earlier release saved for this script, "
            "regardless of seed and arguments. If they belong to this run, continue them with "
            f'pytorch.init(run_id="{former}").'
        )
        return None

    return Ranks(context.distributed).on_first(find)


def _saved_seed(context: PyTorchTrialContext, checkpoint: StoredCheckpoint) -> Any:
    text = context._core.checkpoint._storage._read(checkpoint.storage_id, RUN)
    try:
        return None if text is None else load_json(text, RUN).get("seed")
    except InvalidCheckpointException:
        return None


def tell_of_others(context: PyTorchTrialContext) -> None:
    """Name the other runs of this script that the storage has, and how to continue one; chief."""
    storage, facts = context._core.checkpoint._storage, context._run_facts
    others = [run for run in list_runs(storage) if run.facts.get("script") == facts["script"]]
    others = [run for run in others if run.run_id != context._run_id]
    if not others:
        return
    named = "; ".join(_described(run, facts) for run in others[:_MOST_NAMED])
    more = f"; and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    logger.warning(
        f"Run {context._run_id} has no checkpoint yet: training starts from the beginning. Other "
        f"runs of this script are in the storage: {named}{more}. To continue one of them, pass "
        f'pytorch.init(run_id="{others[0].run_id}"). To list them: python -m '
        f"determined.pytorch.runs {storage.location}"
    )


def _described(run: StoredRun, facts: dict[str, Any]) -> str:
    different = ", ".join(differences(facts, run.facts)) or "named otherwise"
    return f"{run.run_id} ({different}; {run.batches} batches)"
