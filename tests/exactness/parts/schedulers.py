"""Learning-rate schedulers, by name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim import lr_scheduler as torch_schedulers

from determined.pytorch import LRScheduler

MODES = {
    "batch": LRScheduler.StepMode.STEP_EVERY_BATCH,
    "optimizer step": LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP,
    "epoch": LRScheduler.StepMode.STEP_EVERY_EPOCH,
}


class Remembering(torch_schedulers.LRScheduler):
    """Keeps its last rates in a deque, and what it was built with in a dictionary."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.seen: deque[float] = deque(maxlen=3)
        self.settings: dict[str, Any] = {"factors": (0.9, 0.8), "often": {2, 3}}
        super().__init__(optimizer)

    def get_lr(self) -> list[float | Any]:
        factor = self.settings["factors"][len(self.seen) % 2]
        rates = [group["lr"] * factor for group in self.optimizer.param_groups]
        self.seen.append(float(rates[0]))
        return rates


class Warmup:
    """A function of the step with state of its own, which LambdaLR saves."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, step: int) -> float:
        self.calls += 1
        return min(1.0, self.calls / 8)


def _one_after_another(optimizer: Optimizer) -> torch_schedulers.LRScheduler:
    first = torch_schedulers.ConstantLR(optimizer, 0.5, total_iters=3)
    second = torch_schedulers.ExponentialLR(optimizer, 0.9)
    return torch_schedulers.SequentialLR(optimizer, [first, second], milestones=[4])


def _chained(optimizer: Optimizer) -> Any:
    return torch_schedulers.ChainedScheduler(
        [
            torch_schedulers.LinearLR(optimizer, 0.2, total_iters=5),
            torch_schedulers.MultiStepLR(optimizer, [4, 8], 0.5),
        ]
    )


SCHEDULERS: dict[str, Callable[[Optimizer], Any]] = {
    "StepLR": lambda o: torch_schedulers.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda o: torch_schedulers.MultiStepLR(o, [4, 6, 6], 0.3),
    "CosineAnnealingLR": lambda o: torch_schedulers.CosineAnnealingLR(o, 12),
    "warm restarts": lambda o: torch_schedulers.CosineAnnealingWarmRestarts(o, 3, 2),
    "OneCycleLR": lambda o: torch_schedulers.OneCycleLR(
        o, 0.1, total_steps=64, cycle_momentum=False
    ),
    "SequentialLR": _one_after_another,
    "LambdaLR": lambda o: torch_schedulers.LambdaLR(o, lambda step: 0.95**step),
    "LambdaLR of an object": lambda o: torch_schedulers.LambdaLR(o, Warmup()),
    "ChainedScheduler": _chained,
    "a scheduler with odd containers": Remembering,
}
