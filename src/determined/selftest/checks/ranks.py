"""Several ranks: one process per device, through each way that they can talk."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from determined.selftest._result import DoesNotHoldError, NotRunError
from determined.selftest._trial import Settings, train, weights_of

BATCHES, RECORDS = 6, 4  # and how many records each rank has of a batch
_CLOSE = 1e-3  # sums in another order are other bits, not other numbers
_DEADLINE_SECONDS = 80
# The end of a traceback, with the rank before it if there is a group. That of torchrun has no text.
_ERROR = re.compile(r"(\[rank\d+\]: *)?[\w.]+(Error|Exception): \S")


def ddp(device: torch.device, folder: Path) -> str:
    """Through the device's own collectives: NCCL on CUDA."""
    return _compare(device, folder, _backend_of(device), "ddp")


def ddp_gloo(device: torch.device, folder: Path) -> str:
    """Through gloo, over main memory."""
    if _backend_of(device) == "gloo":
        raise NotRunError("gloo is what ranks on this device use anyway")
    if device.type != "cuda":
        raise NotRunError(f"gloo has no collectives for {device.type}")
    return _compare(device, folder, "gloo", "ddp")


def fsdp(device: torch.device, folder: Path) -> str:
    """Sharded by FSDP2, through the device's own collectives."""
    return _compare(device, folder, _backend_of(device), "fsdp")


def settings(num_ranks: int, parallel: str = "ddp") -> Settings:
    """Without dropout, which draws otherwise on each rank."""
    return Settings(RECORDS * num_ranks, dropout=0.0, parallel=parallel, is_plain=True)


def _backend_of(device: torch.device) -> str:
    try:
        backend = dist.get_default_backend_for_device(device.type)
    except ValueError:
        raise NotRunError(f"torch has no collectives for {device.type}") from None
    if not dist.is_backend_available(backend):
        raise NotRunError(f"this torch is built without {backend}")
    return str(backend)


def _compare(device: torch.device, folder: Path, backend: str, parallel: str) -> str:
    num_devices = 1 if device.type in ("cpu", "mps") else torch.accelerator.device_count()
    if num_devices == 1 and (backend != "gloo" or device.type == "mps"):
        raise NotRunError(f"{backend} needs a device for each rank, and there is one")
    num_ranks = max(2, num_devices)
    _run_ranks(num_ranks, [backend, parallel, device.type, str(folder)])
    alone = weights_of(train(device, BATCHES, settings(num_ranks)))
    every = [
        torch.load(folder / f"rank_{rank}.pth", weights_only=True) for rank in range(num_ranks)
    ]
    for rank, weights in enumerate(every):
        if not all(map(torch.equal, weights, every[0])):
            raise DoesNotHoldError(f"rank {rank} ended with other weights than rank 0")
    furthest = max(
        ((one - two).abs().max() / two.abs().max().clamp(min=1e-6)).item()
        for one, two in zip(every[0], alone, strict=True)
    )
    if not furthest < _CLOSE:
        raise DoesNotHoldError(
            f"{num_ranks} ranks through {backend} end {furthest:.1e} away from one process with "
            "the same batches"
        )
    return (
        f"{num_ranks} ranks through {backend} have the same weights, {furthest:.0e} from those of "
        "one process with the same batches"
    )


def _run_ranks(num_ranks: int, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", str(num_ranks), "-m", "determined.selftest.checks._rank"]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=_DEADLINE_SECONDS
    )
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        errors = [line for line in done.stderr.splitlines() if _ERROR.match(line)]
        raise DoesNotHoldError(
            f"{num_ranks} ranks failed: {errors[0] if errors else done.stderr[-200:]}"
        )
