"""Where a run leaves the path of an unbroken one: said in one line, recorded, or refused."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from determined.errors import NotExactError
from determined.pytorch._checkpoint.state.training_state import RunRecord
from determined.pytorch._context.context import PyTorchTrialContext

logger = logging.getLogger("determined.pytorch")


def record_departures(
    context: PyTorchTrialContext, record: RunRecord, batches_trained: int, found: Sequence[str]
) -> list[str]:
    """Say what this rank found, and the others; with `init(exact=True)` raise instead.

    All ranks call it. What was found on some ranks only names them. It goes into the checkpoints
    to come, and is returned.
    """
    everywhere = _joined(context.distributed.allgather(list(found)))
    if not everywhere:
        return []
    told = "; ".join(everywhere)
    if context._exact:
        raise NotExactError(
            f"pytorch.init(exact=True): this run cannot continue exactly: {told}. Continue it as "
            "it was saved, or leave out exact=True to accept the difference."
        )
    if context.distributed.rank == 0:
        logger.warning(
            f"From batch {batches_trained} on, this run may not be, bit for bit, what an unbroken "
            f"one would be: {told}."
        )
    record.departures = [*record.departures, {"batches": batches_trained, "what": everywhere}]
    return everywhere


def _joined(by_rank: Sequence[Sequence[str]]) -> list[str]:
    ranks: dict[str, list[int]] = {}
    for rank, found in enumerate(by_rank):
        for text in found:
            ranks.setdefault(text, []).append(rank)
    return [
        text if len(on) == len(by_rank) else f"{text} (rank {', '.join(map(str, on))})"
        for text, on in ranks.items()
    ]
