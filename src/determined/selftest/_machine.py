"""The devices of this machine, and what a report must say of it."""

from __future__ import annotations

import os
import platform

import torch

from determined._version import __version__


def devices() -> list[str]:
    """Return the accelerators that torch uses, else the CPU."""
    accelerator = torch.accelerator.current_accelerator() if _available() else None
    if accelerator is None:
        return ["cpu"]
    if accelerator.type == "mps":
        return ["mps"]
    return [f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())]


def facts() -> dict[str, str]:
    """Return what decides how the checks come out; nothing of the user's."""
    built_for = torch.version.cuda and f"CUDA {torch.version.cuda}"
    built_for = built_for or (torch.version.hip and f"ROCm {torch.version.hip}") or "no GPU"
    return {
        "determined": __version__,
        "torch": f"{torch.__version__}, built for {built_for}",
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "devices": ", ".join(f"{name} ({name_of(name)})" for name in devices()),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
    }


def name_of(device: str) -> str:
    """Return the model of a device, as its driver calls it."""
    kind = torch.device(device).type
    if kind == "cpu":
        return platform.processor() or platform.machine()
    describe = getattr(torch.get_device_module(kind), "get_device_name", None)
    return kind if describe is None else str(describe(torch.device(device)))


def _available() -> bool:
    return torch.accelerator.is_available()
