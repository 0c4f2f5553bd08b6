"""The checkpoint of its parent that a fork outside the platform starts from."""

from __future__ import annotations

import pathlib

from determined._contracts.checkpoint_layout import is_storage_id
from determined.core.ranks.agreement import Ranks
from determined.errors import CheckpointNotFound, InvalidCheckpointException
from determined.pytorch._checkpoint.forking.request import Fork
from determined.pytorch._context.context import PyTorchTrialContext


def find_base(context: PyTorchTrialContext, fork: Fork) -> str:
    """Return the id or path of the newest exact checkpoint at or before the batch of the fork."""
    source, at, storage = fork.source, fork.at, context._core.checkpoint._storage
    assert source is not None
    assert at is not None
    if pathlib.Path(source).is_absolute():
        return source

    def find() -> str:
        found = [c for c in storage.list(source) if c.is_exact]
        usable = [c for c in found if (c.manifest.steps_completed or 0) <= at]
        if usable:
            newest = max(usable, key=lambda c: (c.manifest.steps_completed, c.manifest.sequence))
            return newest.storage_id
        if (
            not found
            and is_storage_id(source)
            and any(c.storage_id == source for c in storage.list())
        ):
            return source
        has = ", ".join(str(c.manifest.steps_completed) for c in found)
        what = f"has checkpoints at batches {has} only" if found else "has no exact checkpoint"
        raise CheckpointNotFound(
            f"`fork_from`: the run {source!r} {what} in {storage.location}, so it cannot be forked "
            f"at batch {at}. To list the runs: python -m determined.pytorch.runs "
            f"{storage.location}"
        )

    return Ranks(context.distributed).on_first(find)


def as_own(counters: dict[str, int] | None, trial_id: int, name: str) -> dict[str, int]:
    """Return the counters of a parent as those of its fork, which continues them."""
    if counters is None:
        raise InvalidCheckpointException(
            f"{name} does not say how many batches were trained, so no run can branch off from it."
        )
    return {**counters, "trial_id": trial_id}
