"""NVML, the library of NVIDIA's driver that knows its GPUs; no process needs a CUDA context for it.

Only the functions that are used here are declared. Each returns 0, or the number of an error.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_LONGEST_TEXT = 96
_IS_PART = 1 << 16  # more MIG devices or processes than any GPU has
_OUT_OF_ROOM = 7
_MIG_ENABLED = 1
# From the newest on: drivers have those that were known when they were made.
_COMPUTING = tuple(f"nvmlDeviceGetComputeRunningProcesses{version}" for version in ("_v3", "_v2"))
_COMPUTING_THROUGH_MPS = tuple(
    f"nvmlDeviceGetMPSComputeRunningProcesses{version}" for version in ("_v3", "_v2")
)


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


@dataclass(frozen=True)
class Device:
    """A GPU, or a part of one that is a MIG device, with the numbers of its instances."""

    handle: ctypes.c_void_p
    uuid: str
    instances: tuple[int, int] | None = None


class Nvml:
    """The library, initialised; OSError where it is missing or does not work."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_LIBRARY)
        self._call("nvmlInit_v2")

    def close(self) -> None:
        self._call("nvmlShutdown")

    def gpus(self) -> Iterator[tuple[int, Device | OSError]]:
        """Yield each GPU with its number, in the order of their PCI addresses.

        For one that the driver cannot reach: the error.
        """
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for number in range(count.value):
            try:
                handle = self._handle("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number))
                yield number, Device(handle, self._text("nvmlDeviceGetUUID", handle))
            except OSError as error:
                yield number, error

    def mig_devices(self, gpu: Device) -> list[Device] | None:
        """Return the MIG devices of a GPU; None if it is not in MIG mode, or cannot be."""
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        try:
            self._call(
                "nvmlDeviceGetMigMode", gpu.handle, ctypes.byref(current), ctypes.byref(pending)
            )
        except OSError:
            return None
        if current.value != _MIG_ENABLED:
            return None
        most = self._number("nvmlDeviceGetMaxMigDeviceCount", gpu.handle)
        found = []
        for number in range(most):
            with contextlib.suppress(OSError):  # numbers without a device lie between others
                handle = self._handle(
                    "nvmlDeviceGetMigDeviceHandleByIndex", gpu.handle, ctypes.c_uint(number)
                )
                instances = (
                    self._number("nvmlDeviceGetGpuInstanceId", handle),
                    self._number("nvmlDeviceGetComputeInstanceId", handle),
                )
                found.append(Device(handle, self._text("nvmlDeviceGetUUID", handle), instances))
        return found

    def model(self, device: Device) -> str:
        return self._text("nvmlDeviceGetName", device.handle)

    def pids(self, device: Device) -> list[int]:
        """Return the processes that compute on it, as the machine numbers them."""
        found: list[int] = []
        for names in (_COMPUTING, _COMPUTING_THROUGH_MPS):
            name = next((name for name in names if hasattr(self._library, name)), None)
            if name is not None:
                with contextlib.suppress(OSError):  # not known for every kind of GPU
                    found += self._pids(name, device)
        return list(dict.fromkeys(found))

    def busy_percent(self, device: Device) -> int:
        utilization = _Utilization()
        self._call("nvmlDeviceGetUtilizationRates", device.handle, ctypes.byref(utilization))
        return int(utilization.gpu)

    def free_memory(self, device: Device) -> int:
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", device.handle, ctypes.byref(memory))
        return int(memory.free)

    def _pids(self, name: str, device: Device) -> list[int]:
        room = 32
        while True:
            count, processes = ctypes.c_uint(room), (_Process * room)()
            try:
                self._call(name, device.handle, ctypes.byref(count), processes)
            except OSError as error:
                if error.errno != _OUT_OF_ROOM or room >= _IS_PART:
                    raise
                room = max(2 * room, count.value)
                continue
            return [int(process.pid) for process in processes[: count.value]]

    def _handle(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call(name, *arguments, ctypes.byref(handle))
        return handle

    def _number(self, name: str, handle: ctypes.c_void_p) -> int:
        value = ctypes.c_uint()
        self._call(name, handle, ctypes.byref(value))
        return value.value

    def _text(self, name: str, handle: ctypes.c_void_p) -> str:
        buffer = ctypes.create_string_buffer(_LONGEST_TEXT)
        self._call(name, handle, buffer, ctypes.c_uint(_LONGEST_TEXT))
        return buffer.value.decode(errors="replace")

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise OSError(errno.ENOSYS, f"this driver has no {name}") from None
        if result := function(*arguments):
            describe = self._library.nvmlErrorString
            describe.restype = ctypes.c_char_p
            text = (describe(result) or b"").decode(errors="replace")
            raise OSError(result, f"{name}: {text or f'error {result}'}")
