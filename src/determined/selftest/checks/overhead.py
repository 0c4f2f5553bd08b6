"""What the loop costs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

from determined import pytorch
from determined.pytorch import Batch
from determined.selftest._result import DoesNotHoldError, NotRunError
from determined.selftest._trial import CheckTrial, Net, Settings, loss_of, plain_loader

_FIRST, _LAST = 20, 120
_ROUNDS = 5
_MOST_SECONDS = 0.0005


class _Timed(CheckTrial):
    start = end = 0.0

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx in (_FIRST, _LAST):
            _wait(self.context.device)
            moment = time.perf_counter()
            self.start, self.end = (self.start, moment) if self.start else (moment, 0.0)
        return super().train_batch(batch, epoch_idx, batch_idx)


def overhead(device: torch.device, folder: Path) -> str:
    """Train in turns with us and with a plain loop; compare the quickest rounds."""
    if device.type == "cpu":
        torch.set_num_threads(1)  # threads of a small model mostly wait for each other
    ours, plain = [], []
    for _ in range(_ROUNDS):
        plain.append(_plain(device))
        ours.append(_ours(device))
    with_us, without = min(ours), min(plain)  # what else the machine did only adds
    found = (
        f"{with_us * 1e6:.0f} us per batch, a plain loop {without * 1e6:.0f} us: "
        f"{(with_us - without) * 1e6:+.0f} us"
    )
    if with_us - without <= _MOST_SECONDS:
        return found
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores + 1:  # one is this check
        raise NotRunError(
            f"{found}, but the machine has more to do (load {load:.0f}, {cores} cores): try again "
            "when it is idle"
        )
    raise DoesNotHoldError(found)


def _ours(device: torch.device) -> float:
    with pytorch.init(seed=1, device=device, enable_tensorboard_logging=False) as context:
        trial = _Timed(context)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(_LAST + 1), checkpoint_policy="none", progress=False
        )
    return (trial.end - trial.start) / (_LAST - _FIRST)


def _plain(device: torch.device) -> float:
    settings, start, number = Settings(), 0.0, 0
    torch.manual_seed(1)
    net = Net(settings.dropout, settings.width).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50)
    pinned = device.type not in ("cpu", "mps")
    while True:
        for batch in plain_loader(settings.batch_size, pinned):
            if number in (_FIRST, _LAST):
                _wait(device)
                if number == _LAST:
                    return (time.perf_counter() - start) / (_LAST - _FIRST)
                start = time.perf_counter()
            loss = loss_of(net, [part.to(device, non_blocking=pinned) for part in batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            number += 1


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
