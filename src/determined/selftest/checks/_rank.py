"""One rank of `ranks.py`: `-m determined.selftest.checks._rank BACKEND PARALLEL DEVICE FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from determined import pytorch
from determined.pytorch import Batch
from determined.selftest._trial import CheckTrial
from determined.selftest.checks.ranks import BATCHES, settings


def main(backend: str, parallel: str, kind: str, folder: str) -> None:
    rank, device = int(os.environ["RANK"]), torch.device(kind)
    if kind != "cpu":
        number = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
        device = torch.device(kind, number)
        torch.accelerator.set_device_index(number)
    dist.init_process_group(backend)
    try:
        with pytorch.init(seed=1, device=device, enable_tensorboard_logging=False) as context:
            trial = CheckTrial(context, settings(1, parallel))
            pytorch.Trainer(trial, context).fit(
                max_length=Batch(BATCHES), checkpoint_policy="none", progress=False
            )
        whole = [
            (p.full_tensor() if isinstance(p, DTensor) else p).detach().cpu()
            for p in trial.net.parameters()
        ]
        torch.save(whole, Path(folder, f"rank_{rank}.pth"))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
