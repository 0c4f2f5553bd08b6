"""Exact resume, through processes as a preempted run has them."""

from __future__ import annotations

from pathlib import Path

import torch

from determined.pytorch._context.determinism import deterministic
from determined.pytorch.verify_resume import verify_resume
from determined.selftest import _trial
from determined.selftest._result import DoesNotHoldError

_BATCHES, _CUT = 12, 5


def resume(device: torch.device, folder: Path) -> str:
    """Train at once and in two parts with the flags of `init(exact=True)`; name what they are."""
    with deterministic(device) as flags:
        pass
    report = verify_resume(_trial.__file__, [str(device)], _BATCHES, _CUT, timeout_seconds=60)
    if report.difference is not None:
        raise DoesNotHoldError(f"with {', '.join(flags)}: {report.difference}")
    return (
        f"{report.batches} batches equal {_CUT}, a new process and {_BATCHES - _CUT} more, bit for "
        f"bit, with exact=True ({', '.join(flags)}); without it, {_without_flags(device)}"
    )


def _without_flags(device: torch.device) -> str:
    first, second = (_trial.weights_of(_trial.train(device, _BATCHES)) for _ in range(2))
    same = all(torch.equal(one, two) for one, two in zip(first, second, strict=True))
    return "two runs here had the same bits, too" if same else "two runs here had other bits"
