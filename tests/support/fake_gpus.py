"""GPUs that are not there: a driver's library that tests compile, and files of the kernel.

The code under test loads NVML and reads /sys as it does on a machine with GPUs.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.preloaded import compiled

LIBRARY = "libnvidia-ml.so.1"
_DRIVER_NOT_LOADED = 9
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class FakeGpu:
    """One GPU. `mig` are the UUIDs of its MIG devices, with an empty one where a number is unused;
    `pids` computes on it, or on the MIG device it is given for."""

    uuid: str
    model: str = "Fake-100"
    mig: tuple[str, ...] | None = None
    pids: tuple[int, ...] | Mapping[str, tuple[int, ...]] = ()
    mps: tuple[int, ...] = ()
    is_lost: bool = False
    busy: int = 0
    free: int = 1 << 33

    def lines(self) -> list[str]:
        facts = (int(self.mig is not None), int(self.is_lost), self.busy, self.free)
        lines = [f"gpu {self.uuid} {self.model} {' '.join(map(str, facts))}"]
        by_part = self.pids if isinstance(self.pids, Mapping) else {}
        lines += [f"pid {pid}" for pid in self.pids if not by_part]
        lines += [f"mps {pid}" for pid in self.mps]
        for number, part in enumerate(self.mig or ()):
            lines += [f"part {part} {number + 1} 0"] if part else ["hole"]
            lines += [f"pid {pid}" for pid in by_part.get(part, ())]
        return lines


@dataclass(frozen=True)
class Nvidia:
    """A driver whose library every process of a test finds, this one included."""

    description: Path
    library: ctypes.CDLL = field(repr=False)

    def has(self, *gpus: FakeGpu) -> None:
        lines = [line for gpu in gpus for line in gpu.lines()]
        self.description.write_text("\n".join([*lines, ""]))

    def fails(self, code: int = _DRIVER_NOT_LOADED) -> None:
        self.description.write_text(f"fails {code}\n")

    @property
    def users(self) -> int:
        """How often the library was initialised in this process, and not shut down."""
        return int(self.library.fake_nvml_users())


def install_nvidia(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Nvidia:
    """Put the library where the loader looks; skip the test where there is no compiler."""
    built = compiled("fake_nvml", (_HERE / "fake_nvml.c").read_text(), f"-Wl,-soname,{LIBRARY}")
    libraries = folder / "driver"
    libraries.mkdir(exist_ok=True)
    shutil.copy(built, libraries / LIBRARY)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    monkeypatch.setenv("FAKE_NVML", str(folder / "nvml"))
    for variable in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(variable, raising=False)
    # The loader has read LD_LIBRARY_PATH of this process long ago, but knows what is loaded.
    found = Nvidia(folder / "nvml", ctypes.CDLL(str(built)))
    found.has()
    return found


def install_amd(
    folder: Path, monkeypatch: pytest.MonkeyPatch, unique_ids: list[int], users: dict[int, int]
) -> None:
    """Let processes started from now on find AMD GPUs; `users` are pids by number of the GPU."""
    nodes = folder / "kfd" / "kfd" / "topology" / "nodes"
    for number, unique in enumerate([-1, *unique_ids]):  # the first one is the processor
        node = nodes / str(number)
        node.mkdir(parents=True)
        is_gpu = unique >= 0
        (node / "gpu_id").write_text(f"{1000 + number if is_gpu else 0}\n")
        properties = {"cpu_cores_count": 0 if is_gpu else 8, "simd_count": 64 * is_gpu}
        properties |= {"unique_id": unique} if is_gpu else {}
        lines = [f"{name} {value}\n" for name, value in properties.items()]
        (node / "properties").write_text("".join(lines))
    for gpu, pid in users.items():
        process = folder / "kfd" / "kfd" / "proc" / str(pid)
        process.mkdir(parents=True)
        for number in range(len(unique_ids)):
            (process / f"vram_{1001 + number}").write_text(str(4096 * (number == gpu)))
    monkeypatch.setenv("LD_PRELOAD", str(compiled("fake_sys", (_HERE / "fake_sys.c").read_text())))
    monkeypatch.setenv("FAKE_KFD", str(folder / "kfd"))
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
