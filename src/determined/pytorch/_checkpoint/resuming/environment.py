"""The environment of a run: what makes the same program compute the same numbers, bit for bit.

It is saved with each checkpoint, as plain values that JSON can hold. A run that continues gets its
number of threads back; what else differs is listed, for `departures.py` to say.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import operator
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from determined.pytorch._checkpoint.resuming.compiled import (
    compiled_code,
    compiled_departures,
    is_compiled,
)

logger = logging.getLogger("determined.pytorch")

VERSION = 1

# Before a script can have changed it, if it imports this package first, as scripts do.
_THREADS_AT_IMPORT = torch.get_num_threads()
_THREADS_SET_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

# They decide which code the libraries below torch and numpy run. Only digests of them are saved.
_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "KMP_DETERMINISTIC_REDUCTION",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_DYNAMIC",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_DYNAMIC",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
)

_FLAGS: dict[str, Callable[[], Any]] = {
    "matmul precision": torch.get_float32_matmul_precision,
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "default dtype": lambda: str(torch.get_default_dtype()).removeprefix("torch."),
    "flushing of denormals": lambda: (torch.tensor([1e-310], dtype=torch.float64) * 1).item() == 0,
}
# Settings and functions of torch.backends.
_ON_CPU = (
    "mkldnn.enabled",
    "mkldnn.deterministic",
    "mkldnn.fp32_precision",
    "mkldnn.matmul.fp32_precision",
    "mkldnn.conv.fp32_precision",
    "mkldnn.rnn.fp32_precision",
    "opt_einsum.enabled",
    "opt_einsum.strategy",
    "cuda.flash_sdp_enabled",  # these three choose the kernel of attention on the CPU as well
    "cuda.math_sdp_enabled",
    "cuda.mem_efficient_sdp_enabled",
)
_ON_GPU = (
    *_ON_CPU,
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.deterministic",
    "cudnn.allow_tf32",
    "cudnn.conv.fp32_precision",
    "cudnn.rnn.fp32_precision",
    "cuda.matmul.allow_tf32",
    "cuda.matmul.fp32_precision",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda.cudnn_sdp_enabled",
)
# torch.set_float32_matmul_precision sets these, too: one cause, one difference.
_FOLLOW_MATMUL_PRECISION = (
    "mkldnn.matmul.fp32_precision",
    "cuda.matmul.allow_tf32",
    "cuda.matmul.fp32_precision",
)

_INSTRUCTIONS = re.compile(r"(sse4|avx|amx|fma|f16c|asimd|sve|bf16|i8mm)\w*")


def current_environment(
    device: torch.device, num_ranks: int, models: Sequence[torch.nn.Module] = ()
) -> dict[str, Any]:
    """Return what decides, besides the trial and its state, what this process computes."""
    return {
        "version": VERSION,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),  # decides speed alone
        "ranks": num_ranks,
        "device": _device_name(device),
        "machine": platform.machine(),
        "processor": _processor()[0],
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "instructions": _processor()[1],
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "packages": _packages(),
        "flags": _flags(_ON_GPU if device.type == "cuda" else _ON_CPU),
        "compiled_models": sum(map(is_compiled, models)),
        "compiled": compiled_code(),
        "variables": {name: _digest(os.environ[name]) for name in _VARIABLES if name in os.environ},
    }


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say in words what differs, as far as both know it, and what of that changes numbers."""
    found = []
    for key, words in _COMPARED.items():
        if key in saved and key in now and saved[key] != now[key]:
            found.append(words(saved[key], now[key]))
    if any(text.startswith(("instruction set", "processor")) for text in found):
        found = [text for text in found if not text.startswith("instructions")]
    if _minor(saved.get("python")) != _minor(now.get("python")):
        found.append(f"Python {now.get('python')} instead of {saved.get('python')}")
    found += _different_flags(saved.get("flags"), now.get("flags"))
    found += _different_variables(saved.get("variables"), now.get("variables"))
    return found + compiled_departures(saved.get("compiled"))


@contextlib.contextmanager
def threads_of(saved: Mapping[str, Any] | None) -> Iterator[None]:
    """Compute with as many threads as a run was saved with, unless the user chose another number.

    Another number of threads means sums in another order: other bits.
    """
    threads, before = (saved or {}).get("threads"), torch.get_num_threads()
    if type(threads) is not int or threads < 1 or threads == before or _chosen_by() is not None:
        yield
        return
    logger.info(
        f"Training continues with {_threads(threads)}, as before; here it would be {before}."
    )
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _chosen_by() -> str | None:
    """Return how the user chose the number of threads of this process; None if nobody did."""
    if torch.get_num_threads() != _THREADS_AT_IMPORT:
        return "torch.set_num_threads"
    for name in _THREADS_SET_BY:
        if os.environ.get(name) and not _is_from_launcher(name, os.environ[name]):
            return name
    return None


def _is_from_launcher(name: str, value: str) -> bool:
    """Whether a program set this variable: it says nothing about what the user wants."""
    if f"{name}={value}" in os.environ.get("DET_SET_VARIABLES", "").split():
        return True  # the platform's, for a run
    # torchrun sets this for several processes on a machine, and does not record it.
    several = os.environ.get("LOCAL_WORLD_SIZE", "1") != "1"
    return "TORCHELASTIC_RUN_ID" in os.environ and several and value == "1"


# What there is.


def _flags(backends: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    # Older torch does not have all; newer refuses to read what was set under another name.
    for name, read in _FLAGS.items():
        with contextlib.suppress(RuntimeError):
            values[name] = read()
    for name in backends:
        with contextlib.suppress(AttributeError, RuntimeError):
            found = operator.attrgetter(name)(torch.backends)
            values[name] = found() if callable(found) else found
    plain = (bool, str, type(None))
    return {name: v if isinstance(v, plain) else str(v) for name, v in values.items()}


def _device_name(device: torch.device) -> str:
    name = getattr(torch.get_device_module(device), "get_device_name", None)  # not for all kinds
    return device.type if name is None else str(name(device))


@functools.cache
def _processor() -> tuple[str, str]:
    """Return the processor's name, and those of its instructions that compute with vectors."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return platform.processor(), ""
    name = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*: (.*)$", text, re.MULTILINE)
    known = sorted(filter(_INSTRUCTIONS.fullmatch, flags[1].split())) if flags else []
    return name[1] if name else platform.processor(), " ".join(known)


def _packages() -> dict[str, str]:
    """Return the versions of what this process has imported, by the names of modules."""
    found = {}
    for name, module in sys.modules.copy().items():  # in one step: other threads import
        # Not `getattr`, which may import more.
        version = getattr(module, "__dict__", {}).get("__version__") if "." not in name else None
        if isinstance(version, str):
            found[name] = version
    return dict(sorted(found.items()))


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:8]


# What differs, in words.


def _instead(what: str) -> Callable[[Any, Any], str]:
    return lambda saved, now: f"{what} {now} instead of {saved}"


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count != 1)}"


def _other_threads(saved: int, now: int) -> str:
    by = _chosen_by()
    return f"{_threads(now)} instead of {saved}" + (f" ({_BY.get(by, by)})" if by else "")


def _other_instructions(saved: str, now: str) -> str:
    before, here = set(str(saved).split()), set(now.split())
    lists = (("with", sorted(here - before)), ("without", sorted(before - here)))
    words = [f"{word} {', '.join(names)}" for word, names in lists if names]
    return f"instructions of the processor: {' and '.join(words)}"


_BY = {
    name: f"{name} is set; without it the run keeps its own number" for name in _THREADS_SET_BY
} | {"torch.set_num_threads": "the script calls torch.set_num_threads"}

_COMPARED: dict[str, Callable[[Any, Any], str]] = {
    "threads": _other_threads,
    "ranks": lambda saved, now: f"{now} process{'es' * (now != 1)} instead of {saved}",
    "device": _instead("device"),
    "machine": _instead("architecture"),
    "processor": _instead("processor"),
    "instruction_set": _instead("instruction set"),
    "instructions": _other_instructions,
    "compiled_models": lambda saved, now: (
        f"{now} compiled model{'s' * (now != 1)} instead of {saved}"
    ),
    "torch": _instead("torch"),
    "numpy": _instead("numpy"),
}


def _minor(version: Any) -> list[str] | None:
    return version.split(".")[:2] if isinstance(version, str) else None


def _different_flags(saved: Any, now: Any) -> list[str]:
    if not isinstance(saved, Mapping) or not isinstance(now, Mapping):
        return []
    different = {name for name in saved if name in now and saved[name] != now[name]}
    if "matmul precision" in different:
        different.difference_update(_FOLLOW_MATMUL_PRECISION)
    return [f"{n} {_value(now[n])} instead of {_value(saved[n])}" for n in now if n in different]


def _different_variables(saved: Any, now: Any) -> list[str]:
    if not isinstance(saved, Mapping) or not isinstance(now, Mapping):
        return []
    names = sorted(name for name in {*saved, *now} if saved.get(name) != now.get(name))
    return [f"the variable {name} has another value" for name in names]


def _value(value: Any) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if type(value) is bool else str(value)
