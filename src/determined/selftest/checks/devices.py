"""The devices that the driver lists, and those that torch uses."""

from __future__ import annotations

from pathlib import Path

import torch

from determined.gpu import CUDA, MPS, ROCM, find_gpus
from determined.selftest._machine import devices as devices_of_torch
from determined.selftest._machine import name_of
from determined.selftest._result import DoesNotHoldError

_BUILT_FOR = {CUDA: "CUDA", ROCM: "ROCm", MPS: "MPS"}


def devices(device: torch.device, folder: Path) -> str:
    """Compare both."""
    found, used = find_gpus(), devices_of_torch()
    kind = torch.device(used[0]).type
    if found and kind == "cpu":
        raise DoesNotHoldError(
            f"the driver lists {_named([gpu.uuid for gpu in found])}, but torch "
            f"{torch.__version__} uses the CPU: install a torch that is built for "
            f"{_BUILT_FOR[found[0].kind]}"
        )
    one_of_mig = any(gpu.uuid.startswith("MIG-") for gpu in found)  # CUDA shows one at most
    if kind == "cuda" and len(found) != len(used) and not one_of_mig:
        raise DoesNotHoldError(
            f"the driver lists {_named([gpu.uuid for gpu in found])}, but torch uses "
            f"{len(used)}: trials would get other devices than torch finds"
        )
    return _named([f"{name} ({name_of(name)})" for name in used])


def _named(things: list[str]) -> str:
    return f"{len(things)}: {', '.join(things)}"
