"""One GPU, as what computes on it is told of it."""

from __future__ import annotations

from dataclasses import dataclass

CUDA, ROCM, MPS = "cuda", "rocm", "mps"


@dataclass(frozen=True)
class Gpu:
    """A GPU or a MIG device.

    `name` is what limits a process to it: on CUDA its UUID (`GPU-...` or `MIG-...`), on ROCm its
    number in `HIP_VISIBLE_DEVICES`. `pids` are the processes that compute on it.
    """

    kind: str
    uuid: str
    name: str
    pids: tuple[int, ...] = ()
