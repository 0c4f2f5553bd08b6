"""How busy GPUs are."""

from __future__ import annotations

import contextlib
from typing import Any

from determined.gpu._nvml import Device, Nvml


class NvidiaMonitor:
    """All GPUs of the machine, also those that this process does not see; OSError without one."""

    def __init__(self) -> None:
        self._library = Nvml()
        self._gpus = [gpu for _, gpu in self._library.gpus() if isinstance(gpu, Device)]
        if not self._gpus:
            raise OSError("the driver lists no GPU")

    def sample(self) -> dict[str, Any]:
        """Return utilization in percent and free memory in bytes, by UUID, as far as known."""
        samples: dict[str, Any] = {}
        for gpu in self._gpus:
            values = samples.setdefault(gpu.uuid, {})
            with contextlib.suppress(OSError):  # a GPU in MIG mode has no utilization of its own
                values["gpu_util"] = self._library.busy_percent(gpu)
            with contextlib.suppress(OSError):
                values["gpu_free_memory"] = self._library.free_memory(gpu)
        return samples
