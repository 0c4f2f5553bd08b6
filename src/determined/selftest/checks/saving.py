"""Checkpoints that are written in the background."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch

from determined import pytorch
from determined.pytorch import Batch
from determined.selftest._result import DoesNotHoldError
from determined.selftest._trial import CheckTrial, Settings, weights_of

_BATCHES, _PERIOD = 16, 4
_WIDTH = 200_000  # 26 MB of weights


class _Watched(CheckTrial):
    """Keeps the weights at each batch where a save is due."""

    weights: dict[int, list[torch.Tensor]]
    started: dict[int, float]

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.started[batch_idx] = time.time()
        if batch_idx and batch_idx % _PERIOD == 0:
            self.weights[batch_idx] = weights_of(self)
        return super().train_batch(batch, epoch_idx, batch_idx)


def saving(device: torch.device, folder: Path) -> str:
    """Compare what checkpoints hold with the weights when they were due."""
    storage = folder / "checkpoints"
    with pytorch.init(
        seed=1, device=device, checkpoint_storage=str(storage), enable_tensorboard_logging=False
    ) as context:
        trial = _Watched(context, Settings(width=_WIDTH))
        trial.weights, trial.started = {}, {}
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(_BATCHES), checkpoint_period=Batch(_PERIOD), progress=False
        )
    trial.weights[_BATCHES] = weights_of(trial)
    names = [name for name, _ in trial.net.named_parameters()]
    compared, overtaken = 0, 0
    for path in storage.glob("*/metadata.json"):
        batches = json.loads(path.read_text())["steps_completed"]
        saved = torch.load(path.parent / "state_dict.pth", map_location="cpu", weights_only=True)
        for name, weight in zip(names, trial.weights[batches], strict=True):
            if not torch.equal(saved["models_state_dict"][0][name], weight):
                raise DoesNotHoldError(
                    f"the checkpoint of batch {batches} has another {name} than training had then"
                )
        compared += 1
        overtaken += sum(
            number > batches and moment < path.stat().st_mtime
            for number, moment in trial.started.items()
        )
    if compared != _BATCHES // _PERIOD:
        raise DoesNotHoldError(f"{compared} of {_BATCHES // _PERIOD} checkpoints were stored")
    return (
        f"{compared} checkpoints hold the weights of their batch, bit for bit; {overtaken} batches "
        "were trained while one was being written"
    )
