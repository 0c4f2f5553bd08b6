"""The device of a rank."""

from __future__ import annotations

import torch

from determined.core import DistributedContext


def choose_device(
    asked: torch.device | str | None, num_gpus: int, distributed: DistributedContext
) -> torch.device:
    """Return the device that was asked for, else the accelerator of this rank, else the CPU."""
    if asked is not None:
        try:
            return torch.device(asked)
        except (RuntimeError, TypeError, ValueError) as e:
            raise ValueError(
                f"`device` must be a torch.device or the name of one, such as 'cuda:1', got "
                f"{asked!r}."
            ) from e
    accelerator = torch.accelerator.current_accelerator() if num_gpus > 0 else None
    if accelerator is None:
        return torch.device("cpu")
    if accelerator.type == "mps":
        return torch.device("mps")
    if distributed.size == 1:
        return torch.device(accelerator.type, 0)
    device = torch.device(accelerator.type, distributed.local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device
