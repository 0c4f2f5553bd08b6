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
            device = torch.device(asked)
        except (RuntimeError, TypeError, ValueError) as e:
            raise ValueError(
                f"`device` must be a torch.device or the name of one, such as 'cuda:1', got "
                f"{asked!r}."
            ) from e
        if device.type == getattr(torch.accelerator.current_accelerator(), "type", None):
            use_device(device)
        return device
    accelerator = torch.accelerator.current_accelerator() if num_gpus > 0 else None
    if accelerator is None:
        return torch.device("cpu")
    if accelerator.type == "mps":
        return torch.device("mps")
    device = torch.device(accelerator.type, distributed.local_rank if distributed.size > 1 else 0)
    use_device(device)
    return device


def use_device(device: torch.device) -> None:
    """Make this the current device: the one whose random state is saved and restored."""
    if device.index is None or device.type == "mps":  # which has one device, and no choice
        return
    num_devices = torch.accelerator.device_count()
    if device.index >= num_devices:
        raise ValueError(
            f"There is no device {device}: this process sees {num_devices} of them. Start at most "
            "as many processes on a machine as it has devices, one each, or pass `device`."
        )
    torch.accelerator.set_device_index(device)
