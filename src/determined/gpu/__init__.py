"""Which GPUs this process may use, without importing a framework.

`_find.py` first: it asks the driver of each vendor. Which of them a run gets is decided in
`platform/machines/slots.py`.
"""

from determined.gpu._find import find_gpus, get_gpu_processes, get_gpu_uuids
from determined.gpu._gpu import CUDA, MPS, ROCM, Gpu
from determined.gpu._monitor import NvidiaMonitor

__all__ = [
    "CUDA",
    "MPS",
    "ROCM",
    "Gpu",
    "NvidiaMonitor",
    "find_gpus",
    "get_gpu_processes",
    "get_gpu_uuids",
]
