"""A simulated accelerator: torch's PrivateUse1 backend over host memory, stricter than a GPU.

`load()` builds it once per environment and registers it as `torch.simulated`, with two devices.
It must come before the first backward pass of a process, and from then on torch has an accelerator:
tests run in processes of their own, with `environment()`, in which every `import torch` has it.

Read device.cpp first: what it does to copies, streams and memory. module.py is `torch.simulated`,
building.py compiles, process_group.py lets two ranks talk.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from tests.accelerator.building import build, reason_to_skip

__all__ = ["NAME", "environment", "load", "reason_to_skip"]

NAME = "simulated"
_ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    """Build the device if need be, register it, and return `torch.simulated`."""
    import torch
    from torch.utils import backend_registration

    registered: ModuleType | None = sys.modules.get(f"torch.{NAME}")
    if registered is not None:
        return registered
    path = build()
    spec = importlib.util.spec_from_file_location("simulated_device", path)
    assert spec is not None
    assert spec.loader is not None
    library = importlib.util.module_from_spec(spec)
    sys.modules["simulated_device"] = library
    spec.loader.exec_module(library)
    from tests.accelerator import module, process_group

    backend_registration.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, module)  # type: ignore[no-untyped-call]
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    process_group.register()
    return module


def environment() -> dict[str, str]:
    """Return the variables with which torch has the device in a process and in its children.

    torch loads backends that installed packages announce; the folder of the build announces ours.
    """
    folder = build().parent
    paths = [str(folder), str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
    }
