"""The GPUs that a process may use: asked of each vendor's driver, limited as its runtime limits."""

from __future__ import annotations

import logging
import os
import platform
import sys

from determined.gpu import _kfd
from determined.gpu._gpu import CUDA, MPS, ROCM, Gpu
from determined.gpu._nvml import Device, Nvml
from determined.gpu._visible import Choice, visible

logger = logging.getLogger("determined")


def find_gpus() -> list[Gpu]:
    """Return the visible GPUs, those of one vendor: NVIDIA, else AMD, else Apple.

    A GPU in MIG mode is not listed; its MIG devices are. `CUDA_VISIBLE_DEVICES`, or
    `ROCR_VISIBLE_DEVICES` and `HIP_VISIBLE_DEVICES`, limit and order the answer as they do for
    CUDA and ROCm, except that an entry for a GPU in MIG mode stands for all its MIG devices.
    """
    return _of_nvidia() or _of_amd() or _of_apple()


def get_gpu_uuids() -> list[str]:
    """Return the UUIDs of the visible GPUs of NVIDIA or AMD."""
    return [gpu.uuid for gpu in find_gpus() if gpu.kind != MPS]


def get_gpu_processes() -> dict[str, list[int]]:
    """Return the pids that compute on each visible GPU, by its UUID; idle GPUs are left out.

    In a container these are pids of the machine, or none at all.
    """
    return {gpu.uuid: list(gpu.pids) for gpu in find_gpus() if gpu.pids}


def _of_nvidia() -> list[Gpu]:
    try:
        library = Nvml()
    except OSError as error:
        if error.errno:  # the library is there, and the driver is not, or is another one
            logger.warning("NVIDIA's driver cannot list GPUs: %s", error.strerror)
        return []
    try:
        choices = _choices(library)
        limit = os.environ.get("CUDA_VISIBLE_DEVICES")
        _warn_of_numbers(library, choices, limit)
        return [
            Gpu(CUDA, device.uuid, device.uuid, tuple(library.pids(device)))
            for device in visible(choices, limit)
        ]
    finally:
        library.close()


def _choices(library: Nvml) -> list[Choice[Device]]:
    choices, parts = [], []
    for number, gpu in library.gpus():
        if isinstance(gpu, OSError):
            logger.warning("GPU %d is not used: %s", number, gpu.strerror or gpu)
            continue
        mig = library.mig_devices(gpu)
        choices.append(Choice((gpu.uuid,), (gpu,) if mig is None else tuple(mig), number))
        for part in mig or ():
            gpu_instance, compute_instance = part.instances or (0, 0)
            older_name = f"MIG-{gpu.uuid}/{gpu_instance}/{compute_instance}"
            parts.append(Choice((part.uuid, older_name), (part,)))
    return choices + parts


def _warn_of_numbers(library: Nvml, choices: list[Choice[Device]], limit: str | None) -> None:
    """CUDA numbers its fastest GPU first, NVML goes by their addresses."""
    by_number = any(word.strip().isdecimal() for word in (limit or "").split(","))
    if not by_number or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return
    gpus = [choice.devices[0] for choice in choices if choice.number is not None and choice.devices]
    if len({library.model(gpu) for gpu in gpus}) > 1:
        logger.warning(
            "CUDA_VISIBLE_DEVICES=%s: these numbers are taken in the order of PCI addresses, but "
            "CUDA may number unlike GPUs otherwise. Give UUIDs (`nvidia-smi -L`), or set "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID.",
            limit,
        )


def _of_amd() -> list[Gpu]:
    nodes = _kfd.gpus()
    by_rocr = [Choice((node.uuid,), (node,), number) for number, node in enumerate(nodes)]
    left = visible(by_rocr, os.environ.get("ROCR_VISIBLE_DEVICES"))
    by_hip = [Choice((node.uuid,), ((n, node),), n) for n, node in enumerate(left)]
    # HIP takes an empty list for none at all, and reads CUDA's only without its own.
    limit = os.environ.get("HIP_VISIBLE_DEVICES") or os.environ.get("CUDA_VISIBLE_DEVICES") or None
    return [
        Gpu(ROCM, node.uuid, str(number), tuple(_kfd.pids(node)))
        for number, node in visible(by_hip, limit)
    ]


def _of_apple() -> list[Gpu]:
    is_apple = sys.platform == "darwin" and platform.machine() == "arm64"
    return [Gpu(MPS, "mps", "mps")] if is_apple else []
