"""Code that torch.compile generated: where another process may compute other bits with it.

With several threads, generated code adds into shared places (the gradient of an embedding, a
scatter) in whatever order the threads come, so even two equal processes differ. And code for
several shapes is laid out for those that a process meets first.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def is_compiled(model: torch.nn.Module) -> bool:
    """Whether torch.compile has compiled a model or a part of it: it rounds otherwise then."""
    return any(
        getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")
        for module in model.modules()
    )


def compiled_code() -> dict[str, bool]:
    """Return what of the code that this process has generated matters; empty without any."""
    with contextlib.suppress(Exception):  # these are internals of torch, and only for a message
        files = _generated_files()
        if files and torch.get_num_threads() > 1:
            ordered = torch.are_deterministic_algorithms_enabled()
            atomic = not ordered and any(map(_adds_in_any_order, files))
            return {"atomic": atomic, "shapes": _is_for_several_shapes()}
    return {}


def compiled_departures(saved: Any) -> list[str]:
    """Say in words why a run with such code may not continue exactly."""
    if not isinstance(saved, Mapping):
        return []
    found = []
    if saved.get("atomic"):
        found.append(
            "code of torch.compile adds gradients in any order of its threads (one thread or "
            "torch.use_deterministic_algorithms(True) makes it exact)"
        )
    if saved.get("shapes"):
        found.append(
            "torch.compile generates code for several shapes, laid out for those that a process "
            "meets first (one thread makes it exact)"
        )
    return found


def _generated_files() -> tuple[str, ...]:
    cache = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
    modules = getattr(cache, "modules", ())
    modules = modules.values() if isinstance(modules, Mapping) else modules
    return tuple(file for module in modules if (file := getattr(module, "__file__", None)))


@functools.cache
def _adds_in_any_order(file: str) -> bool:
    """Whether a kernel of the file adds into shared places in a loop that threads share."""
    kernels = Path(file).read_text(errors="replace").split("async_compile.")
    return any("atomic_add" in kernel and "#pragma omp" in kernel for kernel in kernels)


def _is_for_several_shapes() -> bool:
    metrics = sys.modules["torch._dynamo.utils"].get_compilation_metrics()
    reasons = (getattr(metric, "recompile_reason", None) or "" for metric in metrics)
    return any("size mismatch" in reason for reason in reasons)
