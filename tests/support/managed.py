"""A training script as the platform starts it; `python -m tests.support.managed [BATCH]`.

At the given batch it is asked to stop, by its control file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from determined import pytorch
from determined.journal import Control
from determined.pytorch import Batch
from tests.support.resumable import ResumableTrial, fingerprint
from tests.support.waiting import eventually

LENGTH = 12


class ManagedTrial(ResumableTrial):
    """Can have itself preempted."""

    stop_at = -1

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == self.stop_at:
            Control(preempt=True, reason="paused").write(Path(os.environ["DET_RUN_DIR"]))
            eventually(self.context._core.preempt.preempt_requested_locally)
        return super().train_batch(batch, epoch_idx, batch_idx)


def main(stop_at: int) -> None:
    """Train; the digest of the weights is printed only if training came to its end."""
    ManagedTrial.stop_at = stop_at
    with pytorch.init() as context:
        trial = ManagedTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(LENGTH), validation_period=Batch(3), reporting_period=Batch(2)
        )
    print(f"finished {fingerprint(trial).weights}")  # noqa: T201  # the test reads it


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else -1)
