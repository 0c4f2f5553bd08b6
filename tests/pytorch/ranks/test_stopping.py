"""Several ranks stop after the same batch, whoever asks."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from determined.pytorch import Batch
from tests.support.ranked import (
    NetTrial,
    Results,
    fit,
    on_ranks,
)

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]


class StoppingTrial(NetTrial):
    """Asks to stop, or is sent a signal, on some ranks."""

    number = 0
    ranks: tuple[int, ...] = (1,)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx == 2 and self.context.distributed.rank in self.ranks:
            if self.number:
                os.kill(os.getpid(), self.number)
            else:
                self.context.set_stop_requested(True)
        return super().train_batch(batch, epoch_idx, batch_idx)


def stopping(storage: Path) -> Results:
    options = {"hparams": {"global_batch_size": 8}, "checkpoint_storage": storage / "stopping"}
    trial = fit(StoppingTrial, options, max_length=Batch(500))
    found: Results = {"asked": len(trial.digests)}
    options["run_id"] = "stopped"
    for ranks in ((1,), (0, 1)):
        chosen = type("Chosen", (StoppingTrial,), {"number": signal.SIGTERM, "ranks": ranks})
        try:
            fit(chosen, options, max_length=Batch(500))
        except SystemExit as end:
            found[ranks] = end.code
    found["resumed"] = fit(
        NetTrial, options, max_length=Batch(400), latest_checkpoint="latest"
    ).digests
    return found


def test_any_rank_may_ask_or_be_signalled_and_all_stop_together(tmp_path: Path) -> None:
    first, second = on_ranks(2, stopping, tmp_path)
    assert 3 <= first["asked"] == second["asked"] <= 103
    for ranks in ((1,), (0, 1)):
        assert first[ranks] == second[ranks] == 143
    assert first["resumed"] == second["resumed"]
    assert 0 < len(first["resumed"]) < 400
