"""Waits of the processor for the device: each one stops it from queueing work ahead."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

from determined.selftest._result import DoesNotHoldError, NotRunError
from determined.selftest._trial import train

_FEW, _MANY = 10, 50


def waits(device: torch.device, folder: Path) -> str:
    """Count them in runs of two lengths with one report each: what grows is per batch."""
    module = None if device.type == "cpu" else torch.get_device_module(device)
    if not hasattr(module, "set_sync_debug_mode"):
        raise NotRunError(f"torch does not count waits on {device.type}")
    few, many = _count(device, _FEW), _count(device, _MANY)
    if len(many) > len(few):
        per_batch = (len(many) - len(few)) / (_MANY - _FEW)
        common = max(set(many), key=many.count)
        raise DoesNotHoldError(f"{per_batch:.2f} waits per batch; most often at {common}")
    return f"none per batch, and {len(few)} in a run with one report, whatever its length"


def _count(device: torch.device, batches: int) -> list[str]:
    """Return where torch saw the processor wait."""
    module = torch.get_device_module(device)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        module.set_sync_debug_mode("warn")
        try:
            train(device, batches)
        finally:
            module.set_sync_debug_mode("default")
    return [f"{w.filename}:{w.lineno}" for w in said if "synchronizing" in str(w.message)]
