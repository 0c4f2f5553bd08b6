"""Mixed precision."""

from __future__ import annotations

from pathlib import Path

import torch

from determined.selftest._result import DoesNotHoldError, NotRunError
from determined.selftest._trial import Settings, train

_BATCHES = 60


def amp(device: torch.device, folder: Path) -> str:
    """Train in each narrow type that the device has."""
    found = []
    for dtype in _dtypes(device):
        name = str(dtype).removeprefix("torch.")
        trial = train(device, _BATCHES, Settings(amp=dtype, dropout=0.0))
        if trial.net.computed_in != {dtype}:
            types = ", ".join(map(str, trial.net.computed_in))
            raise DoesNotHoldError(f"a linear layer under {name} computed in {types}")
        losses = torch.stack(trial.losses).float().cpu()
        before, after = losses[:10].mean().item(), losses[-10:].mean().item()
        if not after < before / 2:  # also if it is not a number
            raise DoesNotHoldError(f"in {name} the loss went from {before:.4f} to {after:.4f}")
        found.append(f"{name}: loss {before:.4f} to {after:.4f} in {_BATCHES} batches")
    if not found:
        raise NotRunError(f"{device.type} has no narrow type that torch supports")
    return "; ".join(found)


def _dtypes(device: torch.device) -> list[torch.dtype]:
    if device.type == "cpu":
        return [torch.bfloat16]
    if device.type == "cuda":
        return [torch.float16, *([torch.bfloat16] if torch.cuda.is_bf16_supported() else [])]
    supported = getattr(torch.get_device_module(device), "get_amp_supported_dtype", None)
    return [torch.float16] if supported is None else list(supported())
