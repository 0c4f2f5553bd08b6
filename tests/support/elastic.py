"""A script whose ranks die now and then: `torchrun -m tests.support.elastic OUTPUT DEATHS`.

The first DEATHS attempts end when a rank kills itself, each time at a later batch. The run ends
with the same weights as one that was never broken.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from determined import pytorch
from determined.pytorch import Batch
from tests.support.resumable import ResumableTrial, fingerprint

LENGTH = 20


class DyingTrial(ResumableTrial):
    """Kills its process at the batch of this attempt; notes when it trains and when it dies."""

    output = Path()
    deaths = 0
    has_trained = False

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), self.context.distributed.rank
        if not self.has_trained:
            self.has_trained = True
            self._note("training", attempt, rank)
        if attempt < self.deaths and rank == attempt % 2 and batch_idx == 5 * attempt + 4:
            self._note("death", attempt, rank)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train_batch(batch, epoch_idx, batch_idx)

    def _note(self, what: str, attempt: int, rank: int) -> None:
        (self.output / f"{what}-{attempt}-{rank}").write_text(str(time.time()))


def main(output: str, deaths: str = "0") -> None:
    DyingTrial.output = Path(output)
    DyingTrial.deaths = int(deaths)
    with pytorch.init(
        seed=7,
        run_id="elastic",
        checkpoint_storage=Path(output) / "storage",
        enable_tensorboard_logging=False,
    ) as context:
        trial = DyingTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(LENGTH),
            checkpoint_period=Batch(2),
            checkpoint_policy="none",
            latest_checkpoint="latest",
            progress=False,
        )
        if context.distributed.rank == 0:
            (Path(output) / "weights").write_text(fingerprint(trial).weights)


if __name__ == "__main__":
    main(*sys.argv[1:])
