"""The run of a fit: its name, the lock on it, and what to say of others in the storage."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Mapping
from typing import Any

from determined._contracts.checkpoint_layout import LOAD_DATA, RUN
from determined.core.ranks.agreement import Ranks
from determined.errors import InvalidCheckpointException, RunInUseError
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._identity.identity import (
    Identity,
    differences,
    digest_of,
    file_name,
    identity_in_0_2,
    identity_of_program,
    is_named_by_current_rules,
    run_id_before_0_2,
    same_hparams,
)
from determined.pytorch._plan import FitPlan
from determined.storage import StoredCheckpoint
from determined.storage._manifest import load_json
from determined.storage._runs import StoredRun, list_runs
from determined.storage.local.run_lock import lock_run as lock_in_storage

logger = logging.getLogger("determined.pytorch")

_MOST_NAMED = 3


def lock_run(
    stack: contextlib.ExitStack,
    context: PyTorchTrialContext,
    trial_class: type,
    plan: FitPlan,
) -> None:
    """Name the run, and keep other processes out of it until `stack` closes; for all ranks."""
    identity = identity_of(context)
    wanted = context._run_id or identity.run_id(trial_class) + _suffix(plan)
    # A run that starts from scratch under a generated name can get another one.
    may_rename = context._run_id is None and plan.latest_checkpoint is None

    def hold() -> str:
        checkpoints = context._core.checkpoint
        for number in itertools.count(1):
            run_id = wanted if number == 1 else f"{wanted}-{number}"
            lock = lock_in_storage(
                checkpoints.storage_base, checkpoints._storage.location, file_name(run_id)
            )
            try:
                stack.enter_context(lock)
            except RunInUseError as e:
                if not may_rename:
                    raise
                logger.warning(f"{e} This one starts from scratch as {wanted}-{number + 1}.")
                continue
            break
        return run_id

    context._name_run(Ranks(context.distributed).on_first(hold), identity.facts(trial_class))
    logger.info(f"This is run {context._run_id}.")


def _suffix(plan: FitPlan) -> str:
    """What tells a fork from its parent, which is the same program."""
    fork = plan.fork
    if fork is None or fork.source is None:
        return ""
    return f"-fork-{fork.at}-{digest_of([fork.source])[:6]}"


def identity_of(context: PyTorchTrialContext) -> Identity:
    """Return the identity of the program, with the seed and hyperparameters of the context."""
    return identity_of_program(context._given_seed, context._hparams)


def continue_tensorboard_files(context: PyTorchTrialContext, is_continued: bool) -> None:
    """Continue the run's TensorBoard files in their folder, for all ranks."""
    assert context._run_id is not None, "lock_run() comes first"
    context._core.train._name_tensorboard_run(file_name(context._run_id), is_continued)


# What else the storage has.


def former_checkpoint(context: PyTorchTrialContext, trial_class: type) -> str | None:
    """Return the newest checkpoint that an earlier release saved of this very run, if any.

    Earlier releases told fewer runs apart. Where it may be another run's, say how to continue it.
    """

    def find() -> str | None:
        identity, storage = identity_of(context), context._core.checkpoint._storage
        if context._run_id != identity.run_id(trial_class):
            return None  # a name that the user chose
        in_0_2 = identity_in_0_2(identity).run_id(trial_class)
        for name, is_same in (
            (in_0_2, _is_same_in_0_2),
            (run_id_before_0_2(identity, context._hparams, trial_class), _is_same_before_0_2),
        ):
            newest = storage.latest(name)
            if newest is None or (name == in_0_2 and is_named_by_current_rules(newest.metadata)):
                continue
            if is_same(context, identity, newest):
                logger.warning(
                    f"Continuing checkpoint {newest.storage_id} from an earlier release, which "
                    f"called this run {name}; it is now called {context._run_id}."
                )
                return newest.storage_id
            logger.warning(
                f"{storage.location} has checkpoints that an earlier release saved for this "
                "script, regardless of some of its arguments. If they belong to this run, continue "
                f'them with pytorch.init(run_id="{name}").'
            )
        return None

    return Ranks(context.distributed).on_first(find)


def _is_same_in_0_2(
    context: PyTorchTrialContext, identity: Identity, saved: StoredCheckpoint
) -> bool:
    """Whether nothing that 0.2 ignored tells the two apart: only hyperparameters are on record."""
    hparams = _read_json(context, saved, LOAD_DATA).get("hparams")
    return identity_in_0_2(identity).arguments == identity.arguments and same_hparams(
        context._hparams, hparams
    )


def _is_same_before_0_2(
    context: PyTorchTrialContext, identity: Identity, saved: StoredCheckpoint
) -> bool:
    seed = _read_json(context, saved, RUN).get("seed")
    return not identity.arguments and identity.seed in (None, seed)


def _read_json(
    context: PyTorchTrialContext, checkpoint: StoredCheckpoint, file: str
) -> Mapping[str, Any]:
    text = context._core.checkpoint._storage._read(checkpoint.storage_id, file)
    try:
        return {} if text is None else load_json(text, file)
    except InvalidCheckpointException:
        return {}


def warn_of_other_runs(context: PyTorchTrialContext) -> None:
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
