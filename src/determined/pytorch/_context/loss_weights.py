"""What losses are sums over: `backward(loss, weight=...)` adds it up, `step_optimizer` divides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from determined.core._distributed import DistributedContext
from determined.errors import InvalidExperimentException
from determined.pytorch._checks.arguments import check_number
from determined.pytorch._ranks.fsdp import local_part


class LossWeights:
    """The weights of losses since the last step of each optimizer, over batches and ranks.

    Weighted losses are differentiated times `size / unit`. Ranks average their gradients, so those
    are of the sum over all ranks, however many there are. The unit, a power of two near the weights
    of the first batch, keeps gradients as small as those of means, for the sake of float16.
    """

    def __init__(
        self, num_optimizers: int, device: torch.device, distributed: DistributedContext
    ) -> None:
        self._distributed = distributed
        # Whole tokens of any run are exact in float64, which only MPS does not have.
        dtype = torch.float32 if device.type == "mps" else torch.float64
        self._own = torch.zeros(num_optimizers, dtype=dtype, device=device)  # of this rank
        self._total = torch.zeros_like(self._own)  # over all ranks
        self._sending: list[tuple[Any, torch.Tensor]] = []
        self._weighted: set[int] = set()
        self._plain: set[int] = set()
        self._unit: float | None = None

    def add(
        self, weight: float | torch.Tensor, optimizers: Sequence[int], ends_window: bool
    ) -> float:
        """Count a loss for these optimizers; return what to multiply it by.

        At the end of a window weights go to the other ranks while gradients are computed. Every
        rank must call it then.
        """
        _check_weight(weight)
        if self._unit is None:
            total = sum(self._distributed.allgather(float(weight)))
            self._unit = 2.0 ** round(math.log2(total)) if total > 0 else 1.0
        self._own[optimizers] += weight
        self._weighted.update(optimizers)
        if ends_window:
            self._send()
        return self._distributed.size / self._unit

    def add_plain(self, optimizers: Iterable[int]) -> None:
        """Note a loss without a weight, which has no place among weighted ones."""
        self._plain.update(optimizers)

    def is_open(self, optimizer: int) -> bool:
        """Say whether gradients of this optimizer are of weighted losses."""
        return optimizer in self._weighted

    def take(self, optimizer: int) -> torch.Tensor | None:
        """Return what to divide the gradients of this optimizer by, and start over.

        None if no loss had a weight. If all weights are 0, gradients are, and stay so.
        """
        is_mixed = optimizer in self._plain
        self._plain.discard(optimizer)
        if optimizer not in self._weighted:
            return None
        if is_mixed:
            raise InvalidExperimentException(
                f"Optimizer {optimizer} is to apply gradients of backward(loss, weight=...) and of "
                "backward(loss) at once: what would they be divided by? Give each loss a weight "
                "(0 for one that comes on top of another), or say which optimizer each is for with "
                "backward(..., only=...)."
            )
        self._weighted.discard(optimizer)
        if self._distributed.size == 1:  # the last batch of the window may have had no loss
            self._send()
        self._receive()
        total = self._total[optimizer].clone()
        self._total[optimizer] = 0
        return torch.where(total > 0, total, 1) / (self._unit or 1)

    def _send(self) -> None:
        self._receive()
        mine, self._own = self._own, torch.zeros_like(self._own)
        if self._distributed.size > 1:
            self._sending.append((dist.all_reduce(mine, async_op=True), mine))
        else:
            self._total += mine

    def _receive(self) -> None:
        for work, total in self._sending:
            work.wait()
            self._total += total
        self._sending.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return what was counted and not yet used."""
        self._receive()
        return {
            "own": self._own.tolist(),
            "total": self._total.tolist(),
            "weighted": sorted(self._weighted),
            "plain": sorted(self._plain),
            "unit": self._unit,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on with what a checkpoint has."""
        self._own = self._own.new_tensor(saved["own"])
        self._total = self._total.new_tensor(saved["total"])
        self._weighted, self._plain = set(saved["weighted"]), set(saved["plain"])
        self._unit = saved["unit"]


def joined_weights(ranks: Sequence[Mapping[str, Any]], rank: int) -> dict[str, Any]:
    """Return what a rank begins with if their number has changed: the chief has all weights."""
    sums = [sum(weights) for weights in zip(*(state["own"] for state in ranks), strict=True)]
    return {**ranks[0], "own": sums if rank == 0 else [0.0] * len(sums)}


def divide_gradients(parameters: Iterable[torch.Tensor], divisor: torch.Tensor) -> None:
    """Divide gradients by a number that may not have arrived from the device yet."""
    gradients = [local_part(p.grad).data for p in parameters if p.grad is not None]
    for gradient in gradients:
        gradient.div_(divisor.to(gradient.device))


def _check_weight(weight: Any) -> None:
    """Refuse what is no number; one on an accelerator is not looked at, which would wait for it."""
    if isinstance(weight, torch.Tensor):
        if weight.numel() != 1 or weight.is_complex():
            raise ValueError(f"`weight` must be one number, got {weight!r}.")
        if not weight.is_cpu:
            return
        weight = weight.item()
    check_number("weight", weight)
