"""The run that a script belongs to, and the checkpoint that it continues."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from determined._contracts.checkpoint_layout import is_storage_id
from determined._info import trial_of
from determined.core import Context
from determined.core.backends.backend import RunDescription
from determined.errors import CheckpointNotFound
from determined.pytorch._identity.identity import identity_of_program

logger = logging.getLogger("determined.core")

LATEST = "latest"


def run_id_of(core_context: Context, callback: type, **details: Any) -> str | None:
    """Return the name of a run that nobody launched; None in a trial, which has an id.

    The script, its arguments and these details tell runs apart: what `latest` finds is a
    checkpoint of this very run. Every rank calls it.
    """
    if trial_of(core_context.info) is not None:
        return None
    name = identity_of_program(None, details).run_id(callback)
    return str(core_context.distributed.broadcast(name))


def find_checkpoint(core_context: Context, wanted: str | None, run_id: str | None) -> str | None:
    """Return the storage id of the checkpoint to continue from, None to begin at the start.

    In a trial, the trial's newest. Elsewhere what `wanted` names: `latest`, or a storage id. Every
    rank calls it.
    """
    if run_id is None:
        assert core_context.info is not None, "a trial has no run id, anything else has"
        return core_context.info.latest_checkpoint
    if wanted == LATEST:
        with contextlib.suppress(CheckpointNotFound):
            return core_context.checkpoint.resolve(LATEST, run_id)
        if core_context.distributed.rank == 0:
            logger.info("There is no checkpoint of run %s yet: it begins at the start.", run_id)
        return None
    return wanted if wanted is not None and is_storage_id(wanted) else None


def describe_run(
    core_context: Context,
    run_id: str | None,
    continues: str | None,
    *,
    hparams: Mapping[str, Any],
    seed: int = 0,
    metric: str | None = None,
    smaller_is_better: bool = True,
) -> None:
    """Announce a run that nobody launched: as the next run of the one that it continues."""
    if run_id is None or core_context.distributed.rank != 0:
        return
    steps = 0
    if continues is not None:
        steps = int(core_context.checkpoint.get_metadata(continues).get("steps_completed") or 0)
    core_context.train._describe_run(
        RunDescription(
            run_id=run_id,
            hparams=hparams,
            seed=seed,
            continues=continues,
            steps_completed=steps,
            metric=metric,
            smaller_is_better=smaller_is_better,
        )
    )


def metadata_of(core_context: Context, steps_completed: int, run_id: str | None) -> dict[str, Any]:
    """Return what every checkpoint says of itself."""
    trial = trial_of(core_context.info)
    mine = {"trial_id": trial.trial_id} if trial is not None else {"run_id": run_id}
    return {"steps_completed": steps_completed, **mine}
