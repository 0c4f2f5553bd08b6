"""Compile the device, once per source, torch and Python."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).with_name("device.cpp")
_METADATA = "Metadata-Version: 2.1\nName: simulated-device\nVersion: 0\n"
_ENTRY_POINT = "[torch.backends]\nsimulated = tests.accelerator:load\n"


def reason_to_skip() -> str | None:
    """Say why the device cannot be built here, if it cannot."""
    if not sys.platform.startswith("linux"):
        return "the simulated accelerator is built on Linux only"
    if _compiler() is None and not _library().exists():
        return "no C++ compiler for the simulated accelerator: install g++, or set CXX"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "no Python.h for the simulated accelerator: install the headers of Python"
    return None


def build() -> Path:
    """Return the path of the compiled device."""
    library = _library()
    if not library.exists():
        library.parent.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent.parent) as folder:
            made = Path(folder, "made")
            info = made / "simulated_device-0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(_METADATA)
            (info / "entry_points.txt").write_text(_ENTRY_POINT)
            _compile(made / library.name)
            try:
                made.rename(library.parent)
            except OSError:  # another process was quicker
                if not library.exists():
                    raise
    return library


def _library() -> Path:
    import torch

    key = "\n".join((_SOURCE.read_text(), torch.__version__, torch.__file__, sys.version))
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    home = Path(sys.prefix)
    if sys.prefix == sys.base_prefix or not os.access(home, os.W_OK):
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "simulated_accelerator" / name / "simulated_device.so"


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "g++"))


def _compile(target: Path) -> None:
    import torch

    root = Path(torch.__file__).parent
    includes = (root / "include", root / "include/torch/csrc/api/include")
    command = [
        str(_compiler()),
        *("-std=c++20", "-O1", "-g0", "-fPIC", "-shared", "-w"),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-I{path}" for path in (*includes, sysconfig.get_paths()["include"])),
        str(_SOURCE),
        *("-o", str(target)),
        f"-L{root / 'lib'}",
        *("-ltorch_cpu", "-ltorch_python", "-lc10"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"The simulated accelerator does not compile:\n{done.stderr[-4000:]}")
