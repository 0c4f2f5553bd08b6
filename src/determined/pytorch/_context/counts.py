"""What `context.count` counts: tokens and floating-point operations, of this rank and of all."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from determined.pytorch._checks.arguments import check_number


@dataclasses.dataclass
class Counts:
    """Counts since the start of the trial.

    `reported` are the tokens and operations of all ranks at the last report; the chief has them.
    """

    tokens: int | float | torch.Tensor = 0
    flops: float = 0.0
    peak_flops: float | None = None
    reported: tuple[float, float] = (0, 0.0)

    def add(self, tokens: Any, flops: float | None, peak_flops: float | None) -> None:
        """Count what a batch has; numbers on an accelerator are not waited for."""
        if not isinstance(tokens, torch.Tensor):
            check_number("tokens", tokens)
        elif tokens.numel() != 1 or tokens.is_complex():
            raise ValueError(f"`tokens` must be one number, got {tokens!r}.")
        elif tokens.is_cpu:
            tokens = tokens.item()
        else:
            tokens = tokens.detach()
        self.tokens = self.tokens + tokens
        if flops is not None:
            check_number("flops", flops)
            self.flops += flops
        if peak_flops is not None:
            check_number("peak_flops", peak_flops)
            self.peak_flops = float(peak_flops)

    def own(self) -> tuple[float, float]:
        """Return the tokens and operations of this rank."""
        tokens = self.tokens.item() if isinstance(self.tokens, torch.Tensor) else self.tokens
        return tokens, self.flops

    def report(self, ranks: Sequence[tuple[float, float]]) -> Counted:
        """Return what all ranks have counted since the last report."""
        tokens, flops = (sum(counts) for counts in zip(*ranks, strict=True))
        before, self.reported = self.reported, (tokens, flops)
        peak = None if self.peak_flops is None else self.peak_flops * len(ranks)
        return Counted(tokens, tokens - before[0], flops - before[1], peak)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of this rank."""
        tokens, flops = self.own()
        return {"tokens": tokens, "flops": flops, "reported": list(self.reported)}

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Counts:
        """Go on with what a checkpoint has."""
        tokens, flops = saved["reported"]
        return cls(saved["tokens"], saved["flops"], reported=(tokens, flops))


def joined_counts(ranks: Sequence[Mapping[str, Any]], rank: int) -> dict[str, Any]:
    """Return what a rank begins with if their number has changed: the chief has all counts."""
    sums = {name: sum(state.get(name, 0) for state in ranks) for name in ("tokens", "flops")}
    reported = ranks[0].get("reported", [0, 0.0])
    return {**(sums if rank == 0 else dict.fromkeys(sums, 0)), "reported": reported}


@dataclasses.dataclass(frozen=True)
class Counted:
    """Tokens since the start of the trial, and what one report adds; peak of all ranks together."""

    total_tokens: float
    tokens: float
    flops: float
    peak_flops: float | None

    def rates(self, seconds: float, device: torch.device) -> dict[str, float]:
        """Return tokens per second, how well the devices are used, and the chief's peak memory."""
        seconds = max(seconds, 1e-9)
        rates = {"tokens_per_second": self.tokens / seconds}
        if self.flops and self.peak_flops:
            rates["flops_utilization"] = self.flops / seconds / self.peak_flops
        rates["peak_memory_bytes"] = float(peak_memory(device))
        return rates


def peak_memory(device: torch.device) -> int:
    """Return the most bytes that tensors on the device, or else this process, ever took."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource  # not on Windows, where training on the CPU has no other way to know
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
